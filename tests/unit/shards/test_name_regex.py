"""Regular expressions of topic names: RE2's syntax, as Python's ``re`` matches it, without its worst case."""

from __future__ import annotations

import re
import time

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.shards.name_regex import MAX_LENGTH, NameRegex

names = st.text(alphabet="abAB1._-", min_size=1, max_size=8)
atoms = st.sampled_from(
    [
        r"a",
        r"b",
        r"1",
        r"\.",
        r".",
        r"-",
        r"_",
        r"\d",
        r"\D",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\b",
        r"\B",
        r"^",
        r"$",
        r"\A",
        r"{",
        r"a{,2}",
        r"\x61",
        r"\-",
        r"[ab]",
        r"[^ab]",
        r"[a-z]",
        r"[A-Z0-9_.-]",
        r"[\d_]",
        r"[^\w]",
        r"[]a]",
        r"[a-]",
    ]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        inner.map(lambda part: f"({part})"),
        inner.map(lambda part: f"(?i:{part})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(pattern=patterns, tried=st.lists(names, max_size=6))
def test_regex_matches_what_python_matches(pattern: str, tried: list[str]) -> None:
    # Newer Pythons read {,2} as a repetition; to RE2 it is text.
    expected = re.compile(pattern.replace("{,2}", r"\{,2}"), re.ASCII)
    regex = NameRegex(pattern)
    assert regex.matching(tried) == [name for name in tried if expected.fullmatch(name)]


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("orders.*", ["orders", "orders.eu"], ["my-orders"]),
        ("^orders-[0-9]{2}$", ["orders-07"], ["orders-7", "orders-007"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("(?i)a(?-i)b", ["Ab", "ab"], ["aB"]),
        ("((?i)a)b", ["Ab"], ["AB"]),
        ("(?s-m:a)", ["a"], ["b"]),
        ("(?P<x>a)(?<y>b)", ["ab"], ["a"]),
        (r"\Qa.b\E.", ["a.bc"], ["axbc"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        ("[[:upper:]_]+", ["A_B"], ["a"]),
        ("[[:^alpha:]]+", ["1-2"], ["a"]),
        (r"\x{61}\x62", ["ab"], ["a"]),
        ("a|", ["a", ""], ["b"]),
        ("a{3", ["a{3"], ["aaa"]),
        ("", [""], ["a"]),
        (r"a\z", ["a"], ["ab"]),
        (r"\pL+", ["ab"], ["1"]),
    ],
)
def test_regex_knows_res_syntax(pattern: str, matching: list[str], other: list[str]) -> None:
    # A brace is no character of a topic's name, so it never matches.
    legal = [name for name in matching if "{" not in name]
    assert NameRegex(pattern).matching([*legal, *other]) == legal


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing )"),
        ("a)", "unexpected )"),
        ("[a", "missing ]"),
        ("[]", "missing ]"),
        ("*a", "no argument for repetition operator"),
        ("a**", "bad repetition operator"),
        ("a{2}{3}", "bad repetition operator"),
        ("a{1001}", "invalid repetition size"),
        ("a{3,2}", "invalid repetition size"),
        ("[z-a]", "invalid character class range"),
        ("[[:letters:]]", "[:letters:]"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\pJ", "invalid character class range"),
        (r"\Z", "invalid escape sequence"),
        (r"\x4", "invalid escape sequence"),
        (r"\x{110000}", "invalid escape sequence"),
        ("\\", "trailing \\"),
        ("(?=a)", "invalid perl operator"),
        ("(?<=a)", "invalid perl operator"),
        ("(?P<a b>c)", "invalid named capture group"),
        ("(?P<>c)", "invalid named capture group"),
        ("(?x:a)", "invalid perl operator"),
        ("\udc80", "it is not Unicode text"),
        ("a" * (MAX_LENGTH + 1), f"it has {MAX_LENGTH + 1} characters, and the limit is {MAX_LENGTH}"),
        (r"[\pL\pN]+\PL+", "states, and the limit is 2000"),
        ("(" * 999, "missing ): " + "(" * 89 + "..."),
    ],
)
def test_regex_refuses_with_a_reason(pattern: str, why: str) -> None:
    with pytest.raises(TidelogError) as error:
        NameRegex(pattern)
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert why in error.value.message


@settings(max_examples=examples(200), deadline=None)
@given(st.text(alphabet="ab()[]{}|*+?^$\\.-:1,i<>PQEx", max_size=20))
def test_regex_refuses_or_matches_whatever_comes(pattern: str) -> None:
    try:
        regex = NameRegex(pattern)
    except TidelogError as error:
        refusal = error.code
    else:
        regex.matches("ab1")
        return
    assert refusal is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "a*a*a*a*a*a*b", "(a?){200}a{200}", "(((a{9})*){9})*b"])
def test_regex_takes_no_longer_for_patterns_that_stop_a_backtracking_matcher(pattern: str) -> None:
    began = time.process_time()
    assert not NameRegex(pattern).matches("a" * 199)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (".*", ["a b", "x:1", "ä-1", "日本"]),
        ("x:.", ["x:1"]),
        (r"\w+\s\w+", ["a b"]),
        ("[^a].*", ["x:1", "ä-1", "日本"]),
        ("(?i)Ä-[[:digit:]]", ["ä-1"]),
        ("日.", ["日本"]),
        ("[\u65e5-\u672c]+", ["日本"]),
        ("[[:punct:][:alnum:]]+", ["x:1"]),
    ],
)
def test_pattern_matches_names_of_any_characters(pattern: str, matching: list[str]) -> None:
    assert NameRegex(pattern).matching(["a b", "x:1", "ä-1", "日本"]) == matching
