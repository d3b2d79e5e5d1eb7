"""Regular expressions of topic names: RE2's syntax, as Python's ``re`` matches it, without its worst case."""

from __future__ import annotations

import re
import time

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.shards.name_regex import NameRegex
from tidelog_node.shards.regex_syntax import MAX_LENGTH, MAX_NESTING

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
    ],
)
def test_regex_knows_res_syntax(pattern: str, matching: list[str], other: list[str]) -> None:
    # A brace is no character of a topic's name, so it never matches.
    legal = [name for name in matching if "{" not in name]
    assert NameRegex(pattern).matching([*legal, *other]) == legal


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", ") is missing"),
        ("a)", "unexpected )"),
        ("[a", "] is missing"),
        ("[]", "] is missing"),
        ("*a", "nothing to repeat"),
        ("a**", "a repetition follows a repetition"),
        ("a{2}{3}", "a repetition follows a repetition"),
        ("a{1001}", "more than 1000 repetitions"),
        ("a{3,2}", "a repetition from 3 to 2"),
        ("[z-a]", "the range of a class"),
        (r"[\d-z]", "the range of a class"),
        ("[[:letters:]]", "the class [:letters:]"),
        (r"(a)\1", r"\1 is not supported"),
        (r"\pL", r"\p is not supported"),
        (r"\Z", r"\Z is not supported"),
        (r"\x4", "a digit is missing"),
        (r"\x{110000}", r"\x110000"),
        ("\\", "an escape is missing"),
        ("(?=a)", "(?= is not supported"),
        ("(?<=a)", "(?< is not supported"),
        ("(?P<a b>c)", "the name 'a b' of a group"),
        ("(?P<>c)", "the name '' of a group"),
        ("(?x:a)", "(?x is not supported"),
        ("a" * (MAX_LENGTH + 1), f"it has {MAX_LENGTH + 1} characters, and the limit is {MAX_LENGTH}"),
        ("(" * (MAX_NESTING + 1), f"more than {MAX_NESTING} groups in each other"),
        ("(a{100}){100}", "it needs more than 1000 states"),
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


@pytest.mark.parametrize(
    "pattern", ["(a+)+b", "(a|a)*b", "a*a*a*a*a*a*b", "(a?){200}a{200}", "(((){1000}){1000}){1000}"]
)
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
        ("[[:punct:][:alnum:]]+", ["x:1"]),
    ],
)
def test_pattern_matches_names_of_any_characters(pattern: str, matching: list[str]) -> None:
    assert NameRegex(pattern, is_any_text=True).matching(["a b", "x:1", "ä-1", "日本"]) == matching


@pytest.mark.parametrize("pattern", ["[\u03b2-\u03c9]", r"\x{430}"])
def test_pattern_beyond_ascii_is_refused_where_it_could_not_match(pattern: str) -> None:
    with pytest.raises(TidelogError) as caught:
        NameRegex(pattern, is_any_text=True)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
