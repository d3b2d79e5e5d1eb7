"""The memory of a real node under stopped readers, bursts of records and idle connections."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import AdminClient, NewTopic, Producer
from tidelog.testing import LocalCluster
from tidelog_foundation.errors import ErrorCode

MIB = 1 << 20
RESPONSE_BUDGET_MIB = 32
REQUEST_BUDGET_MIB = 16
SLACK_MIB = 24
"""One batch beyond the budget, what is being built, and what the allocator keeps of it."""
BURST_MIB = 100
IDLE = 1_000
IDLE_MIB = 80
"""The permitted memory of ``IDLE`` connections: the buffers of the transport, not those of records."""
PRODUCERS = 10
PRODUCER_MIB = 4
"""The memory in gRPC and the allocator for a connection's next requests of 1 MiB, before the node takes them."""

_READERS = """
import asyncio, sys
from tidelog_foundation.transport import open_channel
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.log_service_pb2_grpc import LogServiceStub

async def main(address, count, offset):
    item = pb.FetchPartition(index=0, fetch_offset=offset, partition_max_bytes=10 << 20)
    topic = pb.FetchTopic(name="t", partitions=[item])
    request = pb.FetchRequest(max_wait_ms=20_000, min_bytes=1, max_bytes=10 << 20, topics=[topic])
    channels = [open_channel(address) for _ in range(count)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    print("connected", flush=True)
    calls = [LogServiceStub(channel).Fetch(request, timeout=60) for channel in channels]
    await asyncio.sleep(0)
    print("asked", flush=True)
    sizes = [len((await call).topics[0].partitions[0].records) for call in calls]
    print(sum(size > 0 for size in sizes), flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""

_PRODUCERS = """
import asyncio, os, sys
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.transport import open_channel
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.log_service_pb2_grpc import LogServiceStub

async def send(channel, request, count):
    stream = LogServiceStub(channel).ProduceStream()
    codes = []

    async def read():
        for _ in range(count):
            codes.append((await stream.read()).response.topics[0].partitions[0].error.code)

    reading = asyncio.create_task(read())
    for number in range(count):
        await stream.write(pb.ProduceStreamRequest(correlation_id=number, request=request))
    await reading
    return codes, stream

async def main(address, producers, count):
    builder = RecordBatchBuilder()
    builder.append(None, os.urandom(1_000_000), [], 1)
    item = pb.ProducePartition(index=0, records=builder.build())
    topic = pb.ProduceTopic(name="t", partitions=[item])
    request = pb.ProduceRequest(acks=pb.ACKS_LEADER, timeout_ms=30_000, topics=[topic])
    channels = [open_channel(address) for _ in range(producers)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    found = await asyncio.gather(*(send(channel, request, count) for channel in channels))
    print(sorted({code for codes, _ in found for code in codes}), flush=True)
    print(sum(code == 0 for codes, _ in found for code in codes), flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""

has_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")


class Watch:
    """Takes the largest anonymous memory of a process, in MiB, every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._stop = threading.Event()
        self.base = self.peak = self.now()

    def now(self) -> float:
        lines = self._status.read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, self.now())

    def wait_still(self) -> None:
        """Wait until the memory has not grown for a second, at most for five."""
        for _ in range(5):
            before = self.peak
            self._stop.wait(1)
            if self.peak <= before:
                return

    def grown(self) -> float:
        """Return by how much the memory has been above that of the beginning, and begin to watch anew."""
        grown, self.peak = self.peak - self.base, self.now()
        return grown


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    config = {
        "queued.max.response.bytes": RESPONSE_BUDGET_MIB * MIB,
        "queued.max.request.bytes": REQUEST_BUDGET_MIB * MIB,
    }
    with LocalCluster(controllers=1, nodes=1, config=config) as running:
        AdminClient({"bootstrap.servers": running.bootstrap_servers}).create_topics([NewTopic("t", 1, 1)])["t"].result(
            30
        )
        yield running


@contextlib.contextmanager
def readers(cluster: LocalCluster, count: int, offset: int) -> Iterator[subprocess.Popen[str]]:
    """Run readers in a process of their own, each on a connection of its own, all with a fetch under way."""
    command = [sys.executable, "-c", _READERS, cluster.nodes[1].address, str(count), str(offset)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "connected\n"
            assert process.stdout.readline() == "asked\n"
            yield process
        finally:
            process.kill()


def bursts(cluster: LocalCluster, producers: int, size_mib: int) -> tuple[list[int], int]:
    """Produce from many connections at once, all that they take; returns the errors' codes and the batches stored."""
    command = [sys.executable, "-c", _PRODUCERS, cluster.nodes[1].address, str(producers), str(size_mib // producers)]
    codes, stored = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    return json.loads(codes), int(stored)


def burst(cluster: LocalCluster, size_mib: int) -> int:
    """Produce as fast as possible; returns how many records."""
    value, count = os.urandom(100_000), size_mib * MIB // 100_000
    settings = {"linger.ms": 5, "batch.size": 900_000, "queue.buffering.max.kbytes": 400_000, "acks": "1"}
    failed: list[object] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as producer:
        for _ in range(count):
            producer.produce("t", value, partition=0, on_delivery=lambda error, _: failed.extend([error] * bool(error)))
        assert producer.flush(30) == 0
    assert failed == []
    return count


@has_proc
def test_node_keeps_to_its_budget_when_many_producers_send_all_they_have(cluster: LocalCluster) -> None:
    watch = Watch(cluster.nodes[1].pid)
    with watch.running():
        codes, stored = bursts(cluster, PRODUCERS, 2 * BURST_MIB)
        assert watch.grown() < REQUEST_BUDGET_MIB + SLACK_MIB + PRODUCERS * PRODUCER_MIB
    assert set(codes) <= {0, ErrorCode.THROTTLING_QUOTA_EXCEEDED.code}
    assert stored > 0
    assert cluster.failures == []


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process open as many files as the test needs, and no later test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * IDLE:
        pytest.skip(f"needs {2 * IDLE} files, the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@has_proc
@pytest.mark.usefixtures("many_files")
def test_node_keeps_to_its_budgets_under_a_burst_stopped_readers_and_idle_connections(cluster: LocalCluster) -> None:
    watch = Watch(cluster.nodes[1].pid)
    with watch.running():
        count = burst(cluster, BURST_MIB)
        assert watch.grown() < REQUEST_BUDGET_MIB + SLACK_MIB

        with readers(cluster, 40, 0) as stopped:
            stopped.send_signal(signal.SIGSTOP)
            watch.wait_still()
            grown = watch.grown()
            assert grown < RESPONSE_BUDGET_MIB + SLACK_MIB, "40 readers of 10 MiB that read nothing"
            burst(cluster, 10)
            stopped.send_signal(signal.SIGCONT)
            assert stopped.stdout is not None
            assert int(stopped.stdout.readline()) == 40, "all of them get records once they read"
        assert watch.grown() < RESPONSE_BUDGET_MIB + REQUEST_BUDGET_MIB + SLACK_MIB

        with readers(cluster, IDLE, count + burst_count(10)):
            watch.wait_still()
            assert watch.grown() < RESPONSE_BUDGET_MIB + SLACK_MIB + IDLE_MIB
    assert cluster.failures == []


def burst_count(size_mib: int) -> int:
    return size_mib * MIB // 100_000
