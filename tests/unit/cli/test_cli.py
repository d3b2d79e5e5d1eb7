from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidelog.message import Message
from tidelog.testing import FakeCluster
from tidelog_cli.commands import app
from tidelog_cli.records.message_format import message_formatter


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        yield running


def wait_for(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run(cluster: FakeCluster, *args: str, stdin: str | bytes | None = None) -> Result:
    environment = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    return CliRunner().invoke(app, list(args), input=stdin, env=environment)


def test_cli_creates_lists_describes_and_deletes_topics(cluster: FakeCluster) -> None:
    created = run(cluster, "topic", "create", "flights", "-p", "3", "-r", "1", "-c", "max.message.bytes=2000")
    assert (created.exit_code, created.stdout) == (0, "created flights\n")
    assert run(cluster, "topic", "create", "flights", "--if-not-exists").stdout == "flights exists already\n"
    assert (
        run(cluster, "topic", "list").stdout == "TOPIC    PARTITIONS  REPLICATION\nflights           3            1\n"
    )
    assert run(cluster, "topic", "describe", "flights").stdout == (
        "flights: 3 partitions, replication factor 1\n"
        "  max.message.bytes=2000\n"
        "PARTITION  LEADER  LEADER EPOCH  REPLICAS  ISR\n"
        "        0       1             0  1         1\n"
        "        1       1             0  1         1\n"
        "        2       1             0  1         1\n"
    )
    assert run(cluster, "topic", "delete", "flights", "--yes").stdout == "deleted flights\n"


def test_cli_deletes_records_below_offsets(cluster: FakeCluster) -> None:
    run(cluster, "topic", "create", "t", "-p", "2", "-r", "1")
    run(cluster, "produce", "t", "-p", "0", stdin="a\nb\nc\n")
    run(cluster, "produce", "t", "-p", "1", stdin="d\n")
    deleted = run(cluster, "topic", "delete-records", "t", "0:2", "1:-1", "-y")
    assert (deleted.exit_code, deleted.stdout) == (
        0,
        "PARTITION  LOW WATERMARK\n        0              2\n        1              1\n",
    )
    left = run(cluster, "consume", "t", "--from-beginning", "--exit-at-end")
    assert left.stdout == "c\n"
    failed = run(cluster, "topic", "delete-records", "t", "0:9", "1:1", "-y")
    assert (failed.exit_code, failed.stdout) == (1, "PARTITION  LOW WATERMARK\n        1              1\n")
    assert failed.stderr.rstrip().endswith("[OFFSET_OUT_OF_RANGE]")
    assert run(cluster, "topic", "delete-records", "t", "all:-1", "-y").stdout.count("\n") == 3
    wrong = run(cluster, "topic", "delete-records", "t", "0")
    assert (wrong.exit_code, "PARTITION:OFFSET" in wrong.stderr) == (2, True)


def test_cli_shows_log_dirs_and_moves_replicas(cluster: FakeCluster) -> None:
    run(cluster, "topic", "create", "t", "-p", "2", "-r", "1")
    run(cluster, "produce", "t", "-p", "1", stdin="a\n")
    shown = run(cluster, "log-dirs", "describe").stdout.splitlines()
    assert shown[0].startswith("node 1 /memory: 2 replicas, ")
    assert [line.split() for line in shown[1:]] == [
        ["REPLICA", "BYTES", "LAG", "STATE"],
        ["t-0", "0", "0", "current"],
        ["t-1", shown[3].split()[1], "0", "current"],
    ]
    assert run(cluster, "log-dirs", "describe", "-n", "1", "-t", "u").stdout.splitlines() == shown[:1]
    moved = run(cluster, "log-dirs", "move", "/memory", "t-1", "--node", "1")
    assert (moved.exit_code, moved.stdout) == (0, "moving t-1 of node 1 to /memory\n")
    refused = run(cluster, "log-dirs", "move", "/other", "t-1", "u-0", "--node", "1")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("tidelog: error: t-1: ")
    assert "u-0: " in refused.stderr
    assert run(cluster, "log-dirs", "describe", "-n", "9").stderr.startswith("tidelog: error: node 9: ")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("topic", "describe", "nope"), "[UNKNOWN_TOPIC_OR_PARTITION]"),
        (("topic", "delete", "nope", "--yes"), "[UNKNOWN_TOPIC_OR_PARTITION]"),
        (("topic", "create", "a b"), "[INVALID_TOPIC_EXCEPTION]"),
        (("topic", "create", "x", "-r", "3"), "[INVALID_REPLICATION_FACTOR]"),
        (("produce", "nope"), "[UNKNOWN_TOPIC_OR_PARTITION]"),
        (("consume", "nope"), "[UNKNOWN_TOPIC_OR_PARTITION]"),
        (
            ("consume", "nope", "-X", "fetch.min.byte=1"),
            'tidelog: error: unknown configuration "fetch.min.byte"',
        ),
        (("topic", "list", "-b", "127.0.0.1:1", "--timeout", "0.2"), "no broker answered: "),
    ],
)
def test_cli_errors_are_one_line_on_stderr_and_exit_code_1(
    cluster: FakeCluster, args: tuple[str, ...], text: str
) -> None:
    result = run(cluster, *args, stdin="v\n")
    assert result.exit_code == 1
    assert result.stdout == ""
    # Clients of other tests in this process may warn that they wait.
    [line] = [each for each in result.stderr.splitlines() if not each.startswith("tidelog: warning: Still waiting")]
    assert line.startswith("tidelog: error: ")
    assert text in line


@pytest.mark.parametrize(
    "args",
    [("topic", "create"), ("nonsense",), ("consume", "t", "-f", "%z"), ("topic", "create", "t", "-c", "novalue")],
)
def test_cli_usage_errors_exit_with_2(cluster: FakeCluster, args: tuple[str, ...]) -> None:
    assert run(cluster, *args).exit_code == 2


@pytest.mark.parametrize(
    "args", [(), ("topic",), ("cluster",), ("produce",), ("consume",), ("dev",), ("topic", "create")]
)
def test_cli_help_has_a_text_and_examples_for_commands(cluster: FakeCluster, args: tuple[str, ...]) -> None:
    result = run(cluster, *args, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout
    if args and args not in (("topic",), ("cluster",)):
        assert "Example" in result.stdout


def test_cli_produces_lines_and_consumes_them(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    produced = run(cluster, "produce", "t", "--key-separator", ":", stdin="k1:v1\nk2:v:2\nnokey\n")
    assert (produced.exit_code, produced.stdout) == (0, "")
    assert produced.stderr.startswith("3 records to t in ")
    consumed = run(cluster, "consume", "t", "--from-beginning", "--exit-at-end", "-f", "%p:%o %k=%v")
    assert (consumed.exit_code, consumed.stdout) == (0, "0:0 k1=v1\n0:1 k2=v:2\n0:2 =nokey\n")
    limited = run(cluster, "consume", "t", "-o", "1", "--partition", "0", "-n", "1")
    assert limited.stdout == "v:2\n"


def test_cli_produces_a_file(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create_topic("t", 3)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {n}\n" for n in range(2_500)))
    assert run(cluster, "produce", "t", str(lines), "-z", "zstd", "-X", "linger.ms=1").exit_code == 0
    consumed = run(cluster, "consume", "t", "--from-beginning", "-e", "-f", "json")
    values = {json.loads(line)["value"] for line in consumed.stdout.splitlines()}
    assert values == {f"line {n}" for n in range(2_500)}


def test_cli_says_how_many_records_were_not_acknowledged(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1, configs={"max.message.bytes": "200"})
    result = run(cluster, "produce", "t", "-X", "batch.num.messages=1", stdin="short\n" + "x" * 300 + "\nshort\n")
    assert result.exit_code == 1
    assert "tidelog: error: 1 of 3 records not acknowledged" in result.stderr
    assert len(cluster.records("t")) == 2


@pytest.mark.costly
@pytest.mark.parametrize("args", [("topic", "list"), ("consume", "t", "--from-beginning", "-e")])
def test_cli_says_that_its_output_cannot_be_written(cluster: FakeCluster, args: tuple[str, ...]) -> None:
    cluster.create_topic("t", 1)
    run(cluster, "produce", "t", stdin="v\n")
    with open("/dev/full", "wb") as full:
        ended = process(cluster, *args, stdout=full)
        _, errors = ended.communicate(timeout=20)
    assert (ended.returncode, errors) == (1, b"tidelog: error: output: No space left on device\n")


def test_cli_refuses_numbers_that_no_request_can_carry(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    for args in (("topic", "create", "x", "-p", "99999999999"), ("consume", "t", "-o", "99999999999999999999")):
        result = run(cluster, *args)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("tidelog: error: ")
        assert args[-1] in result.stderr


def test_cli_refuses_a_partition_that_the_topic_does_not_have(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    for command in ("produce", "consume"):
        result = run(cluster, command, "t", "-p", "7", stdin="v\n")
        assert result.exit_code == 1
        assert "no partition 7" in result.stderr


def test_cli_shows_the_cluster(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 2)
    result = run(cluster, "cluster", "describe")
    assert result.exit_code == 0
    assert f"cluster {cluster.cluster_id}: 1 topic, 2 partitions" in result.stdout
    assert re.search(r"1  127\.0\.0\.1:\d+ +leader", result.stdout)
    addresses = f"{cluster.bootstrap_servers}  {cluster.kafka_bootstrap_servers}"
    assert re.search(rf"1  {re.escape(addresses)} +-     ready +2", result.stdout)


def process(
    cluster: FakeCluster, *args: str, stdin: int = subprocess.DEVNULL, stdout: Any = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tidelog_cli.main import main; main()", *args]
    environment = {**os.environ, "TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, env=environment)


@pytest.mark.costly
def test_cli_consume_ends_quietly_when_its_reader_goes(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    run(cluster, "produce", "t", stdin="".join(f"{'x' * 100} {n}\n" for n in range(5_000)))
    consumer = process(cluster, "consume", "t", "--from-beginning")
    assert consumer.stdout is not None
    assert consumer.stderr is not None
    assert consumer.stdout.readline().endswith(b" 0\n")
    consumer.stdout.close()
    assert consumer.wait(20) == 0
    assert consumer.stderr.read() == b""
    consumer.stderr.close()


@pytest.mark.costly
def test_cli_consume_ends_quietly_at_ctrl_c(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    run(cluster, "produce", "t", stdin="one\n")
    with process(cluster, "consume", "t", "--from-beginning") as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"one\n"
        consumer.send_signal(signal.SIGINT)
        assert consumer.wait(20) == 130
        assert consumer.stderr.read() == b""


@pytest.mark.costly
def test_cli_that_was_started_with_ctrl_c_ignored_goes_on_at_ctrl_c(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    run(cluster, "produce", "t", stdin="one\n")
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        consuming = process(cluster, "consume", "t", "--from-beginning")
    finally:
        signal.signal(signal.SIGINT, previous)
    with consuming as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"one\n"
        consumer.send_signal(signal.SIGINT)
        run(cluster, "produce", "t", stdin="two\n")
        assert consumer.stdout.readline() == b"two\n"
        consumer.terminate()


@pytest.mark.costly
def test_cli_produce_ends_soon_at_ctrl_c_and_says_what_was_acknowledged(cluster: FakeCluster) -> None:
    cluster.create_topic("t", 1)
    with process(cluster, "produce", "t", stdin=subprocess.PIPE) as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        producer.stdin.write(b"one\n")
        producer.stdin.flush()
        wait_for(lambda: cluster.end_offset("t") == 1)
        cluster.pause()
        producer.stdin.write(b"two\n")
        producer.stdin.flush()
        wait_for(lambda: cluster.calls("Produce") == 1)
        producer.send_signal(signal.SIGINT)
        assert producer.wait(20) == 130
        assert b"Traceback" not in producer.stderr.read()
        cluster.resume()


_SLOW_START = """
import importlib.abc, sys, time
from tidelog_cli.main import main

class SlowImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            print("loading", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, SlowImport())
main()
"""


def test_cli_ends_quietly_at_ctrl_c_while_it_is_loaded() -> None:
    command = [sys.executable, "-c", _SLOW_START, "topic", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as starting:
        assert starting.stdout is not None
        assert starting.stderr is not None
        assert starting.stdout.readline() == b"loading\n"
        starting.send_signal(signal.SIGINT)
        assert starting.wait(20) == -signal.SIGINT
        assert starting.stderr.read() == b""


def test_message_format_knows_every_field_and_escape() -> None:
    message = Message("t", 1, 2, b"k", b"v", [("h", b"x"), ("n", None)], timestamp=(1, 99))
    line = message_formatter(r"%t\t%p %o %k %v %T %h %%\\")(message)
    assert line == b"t\t1 2 k v 99 h=x,n=None %\\\n"


def test_message_format_json_keeps_null_and_shows_bytes_that_are_no_text() -> None:
    line = message_formatter("json")(Message("t", 1, 2, None, b"\xff\xc3\xa9", None, timestamp=(1, 99)))
    assert json.loads(line) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 99,
        "key": None,
        "value": "\\xffé",
        "headers": [],
    }
