"""``tidelog produce`` and ``consume``: lines to records and back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import Result

from tidelog import Producer, TopicPartition
from tidelog.message import Message
from tidelog.testing import FakeCluster
from tidelog_cli.bench.pacing import Pace
from tidelog_cli.records.consume import _Copy
from tidelog_cli.records.line_format import InvalidLineError, LineFormat, ProducedRecord
from tidelog_cli.records.message_format import message_formatter, parts_formatter


@pytest.fixture(autouse=True)
def topic(cluster: FakeCluster) -> Iterator[str]:
    cluster.create_topic("t", 2)
    yield "t"
    cluster.delete_topic("t")


def test_lines_have_headers_keys_and_values_as_they_are_told() -> None:
    form = LineFormat(key_separator=b":", headers_delimiter=b"\t", headers=(("all", b"1"),), partition=3)
    assert form(b"a:1,b:\tkey:value:more") == ProducedRecord(
        b"value:more", b"key", (("all", b"1"), ("a", b"1"), ("b", b"")), 3
    )
    assert form(b"\tvalue") == ProducedRecord(b"value", None, (("all", b"1"),), 3)
    assert LineFormat(key=b"k", has_tombstones=True)(b"") == ProducedRecord(None, b"k")
    assert LineFormat(key_separator=b":", has_tombstones=True)(b"k:") == ProducedRecord(None, b"k")
    assert LineFormat()(b"") == ProducedRecord(b"")
    with pytest.raises(InvalidLineError, match="behind the headers"):
        form(b"no headers")
    with pytest.raises(InvalidLineError, match="'a' is not name:value"):
        form(b"a\tv")


TEXT = st.none() | st.text(max_size=8)


@given(key=TEXT, value=TEXT, headers=st.lists(st.tuples(st.text(min_size=1, max_size=4), TEXT), max_size=3))
def test_json_lines_are_what_consume_prints(
    key: str | None, value: str | None, headers: list[tuple[str, str | None]]
) -> None:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    pairs = [(name, encoded(content)) for name, content in headers]
    line = message_formatter("json")(Message("t", 0, 0, encoded(key), encoded(value), pairs))
    assert LineFormat(is_json=True)(line) == ProducedRecord(encoded(value), encoded(key), tuple(pairs))


@pytest.mark.parametrize("line", [b"x", b"[]", b'{"headers": {"a": 1}}', b'{"headers": [["a"]]}'])
def test_json_lines_that_are_no_record_are_refused(line: bytes) -> None:
    with pytest.raises(InvalidLineError):
        LineFormat(is_json=True)(line)


def test_message_format_has_sizes_times_epochs_and_bytes() -> None:
    message = Message("t", 1, 2, None, b"value", [("a", b"1")], timestamp=(1, 1_768_651_200_123), leader_epoch=7)
    line = message_formatter(r"%K %V %s %S %H %e %d\x41")(message)
    assert line == b"-1 5 value 5 1 7 2026-01-17T12:00:00.123ZA\n"


def test_parts_stand_before_the_value_in_kafkas_order() -> None:
    message = Message("t", 1, 2, None, b"v", [("a", b"1"), ("n", None)], timestamp=(1, 99))
    to_line = parts_formatter(["key", "headers", "offset", "partition", "timestamp"], "|")
    assert to_line(message) == b"CreateTime:99|Partition:1|Offset:2|a:1,n:null|null|v\n"
    assert parts_formatter(["timestamp", "headers"], "\t")(Message("t", 0, 0, b"k", None)) == (
        b"NO_TIMESTAMP\tNO_HEADERS\tnull\n"
    )


def test_pace_makes_up_for_a_delay() -> None:
    now = [0.0]
    pace = Pace(10, lambda: now[0])
    assert [pace.next_due_s() for _ in range(3)] == pytest.approx([0.0, 0.1, 0.2])
    now[0] = 5.0
    assert pace.left_s(pace.next_due_s()) == 0
    assert Pace(None, lambda: now[0]).next_due_s() == 5.0


def test_produce_sends_headers_keys_and_tombstones_and_consume_prints_them(run: Callable[..., Result]) -> None:
    sent = run(
        *("produce", "t", "-p", "0", "-K", ":", "--header", "source=test", "--headers-delimiter", ";", "-Z"),
        *("--acks", "1", "--rate", "1000", "--compression", "gzip"),
        stdin="a:1;k1:v1\n;k2:\n",
    )
    assert sent.exit_code == 0, sent.output
    printed = run("consume", "t", "--from-beginning", "-e", "--print-key", "--print-headers", "--separator", "|")
    assert printed.stdout == "source:test,a:1|k1|v1\nsource:test|k2|null\n"
    lines = [json.loads(line) for line in run("consume", "t", "--from-beginning", "-e", "--json").stdout.splitlines()]
    assert [(line["key"], line["value"], line["headers"]) for line in lines] == [
        ("k1", "v1", [["source", "test"], ["a", "1"]]),
        ("k2", None, [["source", "test"]]),
    ]
    again = run("produce", "t", "-p", "1", "-f", "json", stdin="".join(json.dumps(line) + "\n" for line in lines))
    assert again.exit_code == 0
    assert run("consume", "t", "-p", "1", "-e", "--from-beginning", "-f", "%k=%V %h").stdout == (
        "k1=2 source=test,a=1\nk2=-1 source=test\n"
    )


def test_produce_keeps_to_its_rate_and_reports_as_json(run_json: Callable[..., Any]) -> None:
    started = time.monotonic()
    summary = run_json("produce", "t", "--rate", "50", "--key", "k", stdin="v\n" * 11)
    assert time.monotonic() - started >= 0.2
    assert (summary["topic"], summary["sent"], summary["acknowledged"]) == ("t", 11, 11)


def test_produce_names_the_line_that_is_no_record(run: Callable[..., Result], cluster: FakeCluster) -> None:
    result = run("produce", "t", "-p", "0", "-f", "json", stdin='{"value": "a"}\nnonsense\n')
    assert result.exit_code == 1
    assert "tidelog: error: line 2: it is not JSON: " in result.stderr
    assert [record.value for record in cluster.records("t", 0)] == [b"a"]


def test_consume_starts_at_a_time_or_with_the_last_records(run: Callable[..., Result], cluster: FakeCluster) -> None:
    run("produce", "t", "-p", "0", stdin="a\nb\nc\n")
    run("produce", "t", "-p", "1", stdin="d\n")
    last = run("consume", "t", "-o", "-2", "-e").stdout.splitlines()
    assert sorted(last) == ["b", "c", "d"]
    assert len(run("consume", "t", "--from-time", "-1h", "-e").stdout.splitlines()) == 4
    assert run("consume", "t", "--from-time", "2099-01-01", "-e").stdout == ""
    now = str(int(time.time() * 1000) + 60_000)
    assert run("consume", "t", "--timestamp", now, "-e").stdout == ""
    idle = run("consume", "t", "--from-beginning", "--idle-timeout", "0.1")
    assert (idle.exit_code, len(idle.stdout.splitlines())) == (0, 4)


class SlowConsumer:
    """A consumer whose first record comes after a while, and then none."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    def consume(self, count: int, timeout: float) -> list[Message]:
        if not timeout:
            return []
        time.sleep(timeout)
        self.waits -= 1
        return [] if self.waits else [Message("t", 0, 0, None, b"late", [])]


def test_idle_timeout_begins_with_the_first_answer_of_the_partitions(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    consumer: Any = SlowConsumer(waits=3)
    _Copy(consumer, message_formatter("%v"), None, 0.05, exit_at_end=False, stores=False).run()
    assert (consumer.waits < 0, capfdbinary.readouterr().out) == (True, b"late\n")


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("produce", "t", "-f", "xml"), '"xml" is neither lines nor json'),
        (("produce", "t", "-f", "json", "-K", ":"), "--format json cannot be combined with --key-separator"),
        (("produce", "t", "--key", "k", "-K", ":"), "--key and --key-separator exclude each other"),
        (("produce", "t", "-H", "nothing"), '"nothing" is not NAME=VALUE'),
        (("consume", "t", "--isolation-level", "dirty"), "dirty is not read_committed or read_uncommitted"),
        (("consume", "t", "--from-time", "soon"), '"soon" is not a time'),
        (("consume", "t", "--from-time", "-5x"), '"5x" is not a duration'),
        (("consume", "t", "--from-beginning", "--from-time", "0"), "exclude each other"),
        (("consume", "t", "--print-key", "--json"), "--print-key cannot be combined with"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(
    run: Callable[..., Result], args: tuple[str, ...], problem: str
) -> None:
    result = run(*args, stdin="")
    assert (result.exit_code, problem in result.stderr) == (2, True), result.output


@pytest.fixture(scope="module")
def many_topics(cluster: FakeCluster) -> None:
    for name in ("orders.eu", "orders.us", "preorders.eu"):
        cluster.create_topic(name)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.produce(name, b"v")


@pytest.mark.usefixtures("many_topics")
@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (("orders.eu", "preorders.eu"), ["orders.eu", "preorders.eu"]),
        (("^orders", "preorders.eu"), ["orders.eu", "orders.us", "preorders.eu"]),
        (("--regex", ".*[.]eu"), ["orders.eu", "preorders.eu"]),
        (("--regex", "orders"), []),
    ],
)
@pytest.mark.parametrize("group", [(), ("--group", "several")])
def test_consume_reads_several_topics_and_patterns(
    run: Callable[..., Result], topics: tuple[str, ...], expected: list[str], group: tuple[str, ...]
) -> None:
    group_of_this = (*group[:1], *(f"{name} {topics}" for name in group[1:]))
    result = run("consume", *topics, "--from-beginning", "--exit-at-end", "--format", r"%t\n", *group_of_this)
    assert sorted(result.stdout.split()) == expected
    if not expected:
        assert "no topic matches ^(?:orders)$" in result.stderr


def test_consume_of_a_pattern_leaves_the_topics_of_the_cluster_out(
    run: Callable[..., Result], cluster: FakeCluster
) -> None:
    run("consume", "orders", "--group", "g", "-e")
    assert "no topic matches" in run("consume", "^__", "--from-beginning", "-e").stderr


def test_consume_says_that_a_group_without_offsets_waits_at_the_end(run: Callable[..., Result]) -> None:
    run("topic", "create", "waited-for")
    result = run("consume", "waited-for", "--group", "new", "--idle-timeout", "3")
    assert (
        "waiting for new records: group new has no committed offsets, so it starts at the end; "
        "--from-beginning starts with the first record\n"
    ) in result.stderr
    alone = run("consume", "waited-for", "--idle-timeout", "1.5")
    assert alone.stderr.startswith("waiting for new records: the consumer starts at the end")
