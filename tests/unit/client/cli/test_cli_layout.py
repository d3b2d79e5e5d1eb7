"""Tables, times, questions and hints of the command line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from tidelog.cli.hints import hint_for
from tidelog.cli.tables import layout
from tidelog.cli.times import parse_duration_ms, parse_time, time_text
from tidelog.errors import ErrorCode
from tidelog.testing import FakeCluster

CELL = st.text(alphabet="ab ,-", max_size=40).map(str.strip)


def test_tables_have_columns_as_wide_as_their_widest_cell_and_numbers_to_the_right() -> None:
    assert layout(("NAME", "N"), [("a", 1), ("long name", 22)]) == ["NAME        N", "a           1", "long name  22"]
    assert layout(("A", "B"), [("x", 10), ("-", "-")]) == ["A   B", "x  10", "-   -"]
    assert layout(("NAME", "N"), []) == ["NAME  N"]


def test_tables_fold_wide_text_after_a_separator_to_fit_the_terminal() -> None:
    lines = layout(("TOPIC", "ASSIGNMENT"), [("t", "flights:0,1,2,3;orders:0,1")], width=24)
    assert lines == ["TOPIC  ASSIGNMENT", "t      flights:0,1,2,3;", "       orders:0,1"]


@given(rows=st.lists(st.tuples(CELL, CELL, st.integers(0, 999)), max_size=4), width=st.integers(36, 120))
def test_tables_fit_and_lose_nothing(rows: list[tuple[str, str, int]], width: int) -> None:
    lines = layout(("FIRST", "SECOND", "THIRD"), rows, width)
    assert all(len(line) <= width for line in lines)
    wanted = "".join(f"{a}{b}{n}" for a, b, n in rows)
    assert sorted("".join(lines[1:]).replace(" ", "")) == sorted(wanted.replace(" ", ""))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1768651200123", 1_768_651_200_123),
        ("2026-01-17T12:00:00", 1_768_651_200_000),
        ("2026-01-17T12:00:00.123Z", 1_768_651_200_123),
        ("2026-01-17T13:00:00+01:00", 1_768_651_200_000),
        ("2026-01-17", 1_768_608_000_000),
    ],
)
def test_times_are_utc_without_a_zone(text: str, expected: int) -> None:
    assert parse_time(text) == expected
    assert parse_time(time_text(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("7d", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("-PT1S", -1_000),
        ("PT-1S", -1_000),
        ("p2d", 172_800_000),
    ],
)
def test_durations_are_short_or_as_java_has_them(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1H", "P1H", "PT1D", "h", "-1h", "1 h", "P1DT"])
def test_durations_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "soon", "-5", "2026-13-01", "12:00"])
def test_times_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text)


def test_errors_say_what_to_do_next(run: Callable[..., Result]) -> None:
    result = run("topic", "describe", "nope")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: UNKNOWN_TOPIC_OR_PARTITION: ")
    assert result.stderr.endswith(f"({hint_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)})\n")
    assert hint_for(ErrorCode.UNKNOWN_SERVER_ERROR) is None


DANGEROUS = (
    ("topic", "delete", "kept"),
    ("topic", "delete-records", "kept", "all:-1"),
    ("partition", "elect-leaders", "--election-type", "unclean", "--all-topic-partitions"),
    ("group", "delete", "g"),
    ("group", "delete-offsets", "g", "--topic", "kept"),
    ("group", "reset-offsets", "g", "--to-latest", "--topic", "kept", "--execute"),
    ("cluster", "features", "downgrade", "metadata.version=1", "--unsafe"),
)


@pytest.mark.parametrize("args", DANGEROUS, ids=lambda args: " ".join(args[:2]))
def test_what_is_for_good_is_refused_where_nobody_can_be_asked(
    run: Callable[..., Result], args: tuple[str, ...]
) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for --yes: is needed where nobody can be asked: " in result.stderr


def ask(cluster: FakeCluster, answer: bytes, *args: str) -> tuple[int, str, str]:
    """Run a command at a terminal and answer its question; returns exit code, standard output, what was asked."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from tidelog.cli.main import main; main()", *args]
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, env=environment) as asking:
        os.close(theirs)
        seen = b""
        while b"[y/N]" not in seen:
            seen += os.read(ours, 1_000)
        os.write(ours, answer)
        assert asking.stdout is not None
        printed = asking.stdout.read()
        code = asking.wait(20)
    os.close(ours)
    return code, printed.decode(), seen.decode()


def test_what_is_for_good_asks_at_a_terminal_and_takes_no_for_an_answer(cluster: FakeCluster) -> None:
    cluster.create_topic("asked")
    code, printed, question = ask(cluster, b"n\n", "topic", "delete", "asked")
    assert (code, printed) == (1, "")
    assert "Delete asked and all records?" in question
    assert cluster.end_offset("asked") == 0


def test_reset_shows_its_plan_before_it_asks(cluster: FakeCluster, run: Callable[..., Result]) -> None:
    cluster.create_topic("planned")
    scope = ("--to-latest", "--topic", "planned")
    code, printed, question = ask(cluster, b"y\n", "group", "reset-offsets", "g", *scope, "--execute")
    assert (code, printed.splitlines()[1].split()) == (0, ["g", "planned", "0", "-", "0"])
    assert "planned" in question.partition("Set these offsets of g?")[0]
    assert "group g has no active members" in run("group", "describe", "g").stderr
