"""Tables, times, questions and hints of the command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from tidelog.testing import FakeCluster
from tidelog_cli.options.durations import seconds
from tidelog_cli.output.hints import hint_for
from tidelog_cli.output.printing import fail
from tidelog_cli.output.tables import layout
from tidelog_cli.output.times import parse_duration_ms, parse_time, time_text
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

CELL = st.text(alphabet="ab ,-", max_size=40).map(str.strip)


def test_tables_have_columns_as_wide_as_their_widest_cell_and_numbers_to_the_right() -> None:
    assert layout(("NAME", "N"), [("a", 1), ("long name", 22)]) == ["NAME        N", "a           1", "long name  22"]
    assert layout(("A", "B"), [("x", 10), ("-", "-")]) == ["A   B", "x  10", "-   -"]
    assert layout(("NAME", "N"), []) == ["NAME  N"]


def test_tables_fold_wide_text_after_a_separator_to_fit_the_terminal() -> None:
    lines = layout(("TOPIC", "ASSIGNMENT"), [("t", "flights:0,1,2,3;orders:0,1")], width=27)
    assert lines == ["TOPIC  ASSIGNMENT", "t      flights:0,1,2,3;", "       orders:0,1"]


def test_tables_show_texts_that_all_rows_share_once_where_lines_do_not_fit() -> None:
    rows = [("billing", "orders", 0, 1_500), ("billing", "orders", 1, 1_600)]
    headers = ("GROUP", "TOPIC", "PARTITION", "LOG END OFFSET")
    assert layout(headers, rows, width=40)[:4] == [
        "GROUP: billing",
        "TOPIC: orders",
        "PARTITION  LOG END OFFSET",
        "        0            1500",
    ]
    assert len(layout(headers, rows, width=80)) == 3


def test_tables_have_one_line_per_column_where_folding_does_not_help() -> None:
    rows = [("a" * 30, 9_223_372_036_854_775_807), ("b" * 30, 1)]
    assert layout(("NAME", "LOG END OFFSET"), rows, width=40) == [
        f"NAME            {'a' * 30}",
        "LOG END OFFSET  9223372036854775807",
        "",
        f"NAME            {'b' * 30}",
        "LOG END OFFSET  1",
    ]


def test_tables_break_no_number_and_no_word() -> None:
    rows = [("message.timestamp.after.max.ms", "9223372036854775807", "topic"), ("b.c", "1", "file")]
    lines = layout(("SETTING", "VALUE", "SOURCE"), rows, width=53)
    assert lines[1:3] == ["message.timestamp.after.  9223372036854775807  topic", "max.ms"]


@given(rows=st.lists(st.tuples(CELL, CELL, st.integers(0, 10**12)), max_size=4), width=st.integers(36, 120))
def test_tables_lose_nothing_and_keep_their_numbers_and_words_whole(
    rows: list[tuple[str, str, int]], width: int
) -> None:
    text = "\n".join(layout(("FIRST", "SECOND", "THIRD"), rows, width))
    words = [word for a, b, n in rows for word in (*re.split("[ ,-]+", a), *re.split("[ ,-]+", b), str(n))]
    assert [word for word in words if word not in text] == []
    one_line = layout(("FIRST", "SECOND", "THIRD"), rows)
    assert len(one_line) == len(rows) + 1
    if all(len(line) <= width for line in one_line):
        assert text.splitlines() == one_line


@pytest.mark.costly
def test_output_of_commands_at_80_columns_fits_and_in_a_pipe_has_one_line_per_row(cluster: FakeCluster) -> None:
    long_name = "payments.card-authorisations.europe-west1.v2.dead-letter.of-the-billing-service"
    for name in ("short", long_name):
        cluster.create_topic(name, partitions=2)
    at_terminal = at_80_columns(cluster, "topic", "offsets", "short", long_name)
    assert max(map(len, at_terminal)) <= 80
    assert len(at_terminal) > 5
    command = [*COMMAND, "topic", "offsets", "short", long_name, "-b", cluster.bootstrap_servers]
    piped = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "80"})
    assert [len(line.split()) for line in piped.stdout.splitlines()[1:]] == [5] * 4


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
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "soon", "-5", "2026-13-01", "12:00"])
def test_times_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text)


def test_errors_say_what_to_do_next(run: Callable[..., Result]) -> None:
    result = run("topic", "describe", "nope")
    assert result.exit_code == 1
    hint = hint_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert result.stderr == f"tidelog: error: there is no topic 'nope' ({hint}) [UNKNOWN_TOPIC_OR_PARTITION]\n"
    assert hint_for(ErrorCode.UNKNOWN_SERVER_ERROR) is None


def test_nodes_that_refuse_for_the_same_reason_say_so_once() -> None:
    errors = [error_for(ErrorCode.INVALID_REGULAR_EXPRESSION, text) for text in ("bad (", "bad (", "other")]
    with pytest.raises(TidelogError) as caught:
        fail(errors)
    assert caught.value.message == "bad (; other"


DANGEROUS = (
    ("topic", "delete", "kept"),
    ("topic", "delete-records", "kept", "all:-1"),
    ("partition", "elect-leaders", "--election-type", "unclean", "--all-topic-partitions"),
    ("group", "delete", "g"),
    ("group", "delete-offsets", "g", "--topic", "kept"),
    ("group", "reset-offsets", "g", "--to-latest", "--topic", "kept", "--execute"),
    ("cluster", "features", "downgrade", "metadata.version=1", "--unsafe"),
    ("transaction", "force-terminate", "payments"),
    ("acl", "delete", "--topic", "kept"),
    ("user", "delete", "alice"),
    ("quota", "delete", "--user", "alice"),
)


@pytest.mark.parametrize("args", DANGEROUS, ids=lambda args: " ".join(args[:2]))
def test_what_is_for_good_is_refused_where_nobody_can_be_asked(
    run: Callable[..., Result], args: tuple[str, ...]
) -> None:
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(
        r"Error: Refusing to .+ without confirmation: stdin is not a terminal. Pass --yes to confirm.", result.stderr
    )


COMMAND = [sys.executable, "-c", "from tidelog_cli.main import main; main()"]


def at_80_columns(cluster: FakeCluster, *args: str) -> list[str]:
    """Return the lines that a command prints at a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    with subprocess.Popen([*COMMAND, *args], stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # EIO: the command has ended
            while data := os.read(ours, 65_536):
                printed += data
        assert running.wait(30) == 0, printed
    os.close(ours)
    return printed.decode().splitlines()


def ask(cluster: FakeCluster, answer: bytes, *args: str) -> tuple[int, str, str]:
    """Run a command at a terminal and answer its question; returns exit code, standard output, what was asked."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    with subprocess.Popen(
        [*COMMAND, *args], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, env=environment
    ) as asking:
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


@pytest.mark.costly
def test_what_is_for_good_asks_at_a_terminal_and_takes_no_for_an_answer(cluster: FakeCluster) -> None:
    cluster.create_topic("asked")
    code, printed, question = ask(cluster, b"n\n", "topic", "delete", "asked")
    assert (code, printed) == (1, "")
    assert "Delete topic asked and all records?" in question
    assert cluster.end_offset("asked") == 0


@pytest.mark.costly
def test_reset_shows_its_plan_before_it_asks(cluster: FakeCluster, run: Callable[..., Result]) -> None:
    cluster.create_topic("planned")
    scope = ("--to-latest", "--topic", "planned")
    code, printed, question = ask(cluster, b"y\n", "group", "reset-offsets", "g", *scope, "--execute")
    assert (code, printed.splitlines()[1].split()) == (0, ["g", "planned", "0", "-", "0"])
    assert "planned" in question.partition("Set these offsets of g?")[0]
    assert "group g has no active members" in run("group", "describe", "g").stderr


@pytest.mark.parametrize(("text", "expected"), [("5", 5), ("0.5", 0.5), ("2s", 2), ("1.5m", 90), ("0", 0)])
def test_seconds_of_an_option_are_a_number_or_a_duration(text, expected):
    assert seconds()(text) == expected


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", "5 s", ""])
def test_seconds_of_an_option_are_refused_when_they_are_neither(text):
    with pytest.raises(typer.BadParameter, match=f'"{text}" is not a'):
        seconds()(text)
