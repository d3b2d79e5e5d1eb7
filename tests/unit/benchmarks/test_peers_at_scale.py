"""The parts of the comparison with many connections, partitions and consumers, without a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import process
from benchmarks.options import Options
from benchmarks.peers import catch_up, restart, suite
from benchmarks.peers.clusters import Clusters
from benchmarks.peers.comparison import Found
from benchmarks.peers.load_client import RunningClient, command_line
from benchmarks.peers.load_results import cost, latencies, rate
from benchmarks.peers.peer import PAIR, SMALL, Size
from benchmarks.peers.scale import SCALE_PARTS, ScalePart
from benchmarks.peers.suite import PARTS
from benchmarks.peers.tidelog_cluster import TidelogCluster

_LATENCY = {"count": 4, "p50_s": 0.001, "p99_s": 0.01, "p999_s": 0.02, "max_s": 0.05}


def _found(**theirs: float) -> Found[Mapping[str, Any]]:
    ours = {"seconds": 2.0, "cpu_s": 0.5, "records": 1_000, "resident_mb": 100.0, "latency": _LATENCY}
    return Found({"Tidelog": [ours], "Apache Kafka": [{**ours, **theirs}]})


def test_rate_is_the_count_by_the_seconds_with_its_bar() -> None:
    result = rate(_found(seconds=4.0), "produce", "records", "records/s", at_least=3)

    assert (result.value, result.unit, result.ratio, result.holds) == (500, "records/s", 2.0, False)


def test_cost_is_the_cpu_of_each_record_in_microseconds_and_the_memory() -> None:
    cpu, memory = cost(_found(cpu_s=1.0, resident_mb=50.0), "produce", "records", "record")

    assert (cpu.value, cpu.unit, cpu.ratio) == (500, "µs/record", 2.0)
    assert (memory.value, memory.unit, memory.ratio) == (100, "MB", 0.5)


def test_latencies_are_milliseconds_of_each_percentile_and_the_first_ones_have_bars() -> None:
    p50, p999, slowest = latencies(_found(), "produce", "latency", ("p50", "p99.9", "max"), (None, 1))

    assert [(line.name, line.value) for line in (p50, p999, slowest)] == [
        ("produce: p50", 1),
        ("produce: p99.9", 20),
        ("produce: max", 50),
    ]
    assert [line.bar_text for line in (p50, p999, slowest)] == [None, "at least 1 x", None]


def test_command_line_has_the_cluster_its_processes_and_the_flags() -> None:
    arguments = command_line("a:1,b:2", {"node 1": 7, "node 2": 8}, "live", {"until_input_ends": True, "rate": 5})

    assert arguments == ["live", "-servers=a:1,b:2", "-pids=7,8", "-until-input-ends=True", "-rate=5"]


@pytest.fixture
def command() -> Iterator[Callable[[str], RunningClient]]:
    """Return a function that runs a program in Python in place of the compiled client."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> RunningClient:
        pipe = subprocess.PIPE
        client = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(client)
        return RunningClient(client, "live on Tidelog")

    yield start
    for client in started:
        client.kill()
        client.communicate()


def test_running_client_gives_the_first_line_at_once_and_the_answer_after_the_end_of_its_input(
    command: Callable[[str], RunningClient],
) -> None:
    lines = json.dumps({"measuring": True}), json.dumps({"records": 3})
    running = command(
        f"print('{lines[0]}', flush=True); input_ = input; import sys; sys.stdin.read(); print('{lines[1]}')"
    )

    assert running.first_line() == {"measuring": True}
    running.check()
    assert running.answer() == {"records": 3}


@pytest.mark.parametrize("read", [RunningClient.first_line, RunningClient.answer])
def test_running_client_that_fails_is_an_error_with_its_words(
    command: Callable[[str], RunningClient], read: Callable[[RunningClient], object]
) -> None:
    with pytest.raises(RuntimeError, match="live on Tidelog: no leader"):
        read(command("import sys; sys.exit('no leader')"))


def test_dropped_pages_are_those_of_the_topic_alone(tmp_path: Path) -> None:
    for folder, size in (("stored-0", 10), ("stored-1", 20), ("live-0", 40)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "00000000000000000000.log").write_bytes(bytes(size))
    (tmp_path / "stored-0" / "00000000000000000000.index").write_bytes(bytes(80))

    assert catch_up._drop_pages(tmp_path, "stored") == 30


def test_catch_up_fails_when_the_stored_records_are_compressed() -> None:
    peer = TidelogCluster(SMALL)

    catch_up._check_stored(peer, 10_240, 10)
    with pytest.raises(RuntimeError, match="stores 10 records of 1024 bytes in 10,239 bytes"):
        catch_up._check_stored(peer, 10_239, 10)


def test_disk_reads_of_a_process_are_counted_in_bytes() -> None:
    assert process.disk_read_bytes(os.getpid()) >= 0


def test_broker_answers_when_its_listener_does_and_not_while_it_only_accepts_or_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            for answer in (b"", bytes(4)):
                connection, _ = server.accept()
                with connection:
                    assert connection.recv(64) == restart._API_VERSIONS
                    connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        assert [restart._answers(address), restart._answers(address)] == [False, True]
        serving.join()
    assert not restart._answers(address)


def test_parts_at_scale_can_be_asked_for_by_name() -> None:
    assert {
        "many-connections",
        "many-partitions",
        "many-consumers",
        "restart",
        "long-tail",
        "catch-up",
        "group-churn",
    } == SCALE_PARTS.keys()
    assert SCALE_PARTS.keys() <= set(PARTS)


def test_part_at_scale_has_only_its_own_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[Size] = []

    @contextlib.contextmanager
    def clusters(_: Options, size: Size, *__: object) -> Iterator[Clusters]:
        sizes.append(size)
        yield Clusters([], Options())

    monkeypatch.setattr(suite, "_clusters", clusters)
    monkeypatch.setattr(suite, "SCALE_PARTS", {"restart": ScalePart(lambda _: [], PAIR, is_started=False)})

    assert list(suite.measure(Options(), ["restart"], None)) == [("restart", [])]
    assert sizes == [PAIR]
