"""The cost of metrics: produce requests to a node that counts them, and to one that does not; and that of a scrape.

The node runs in this process, in memory, and the client in another thread, over a socket. The time is the CPU time of
the node's thread. What a request counts cannot be switched off, so the other variant counts no
times, and the first one reads the clock and counts its traffic once more.
"""

from __future__ import annotations

import socket
import struct
import time
from functools import partial
from time import perf_counter_ns
from typing import Final

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate
from benchmarks.suite import run_alone
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.monitoring.exposition import Exposition, Format
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.requests.topics import CreatableTopic, CreateTopicsRequest
from tidelog_foundation.transport import run_sync
from tidelog_node.handlers import create_topics
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.request_times import ApiTimes, RequestTimes
from tidelog_node.partitions.measurements import TopicTraffic
from tidelog_testing.embedded import EmbeddedCluster, Settings, Storage
from tidelog_testing.faults import Gate

_TOPIC: Final = "flights"
_TIMEOUT_S: Final = 30.0
_CLUSTER: Final = {"cluster.id": "bench"}
_RECORD_BYTES: Final = 1_000
_SERIES: Final = 10_000
_TRAFFIC: Final = TopicTraffic()


class _Uncounted(ApiTimes):
    """The times of an API that counts nothing."""

    def is_next_counted(self) -> bool:
        return False


class _Counted(ApiTimes):
    """The product's times of an API, with the cost of reading the clock and of counting the traffic of a topic."""

    def is_next_counted(self) -> bool:
        _TRAFFIC.bytes_in += _RECORD_BYTES
        _TRAFFIC.messages_in += 1
        begun_ns, local_ns, answered_ns = perf_counter_ns(), perf_counter_ns(), perf_counter_ns()
        _TRAFFIC.bytes_out = answered_ns - local_ns - begun_ns
        return super().is_next_counted()


def run(options: Options) -> list[Result]:
    """Measure produce requests, then the rendering of a large scrape."""
    storage = Storage()
    cluster = EmbeddedCluster(storage, Gate(), Settings(_CLUSTER, _CLUSTER))
    run_sync(cluster.start(), _TIMEOUT_S)
    try:
        topic = CreateTopicsRequest((CreatableTopic(_TOPIC, 1, 1),))
        run_sync(create_topics(cluster.context, topic), _TIMEOUT_S)
        with socket.create_connection(("127.0.0.1", storage.kafka_port), _TIMEOUT_S) as client:
            times = _times(cluster)
            return [*_compare(times, client, options), _scrape(options)]
    finally:
        run_sync(cluster.stop(), _TIMEOUT_S)


def _times(cluster: EmbeddedCluster) -> RequestTimes:
    assert cluster._kafka is not None
    assert cluster._kafka._times is not None
    return cluster._kafka._times


def _compare(times: RequestTimes, client: socket.socket, options: Options) -> list[Result]:
    options.say("producing with and without metrics")
    requests = options.pick(500, 200)
    variants = {
        "with": partial(_run_round, times, client, requests, _Counted(8)),
        "without": partial(_run_round, times, client, requests, _Uncounted()),
    }
    rounds = alternate(variants, options.pick(101, 21), warm_up=3)
    name = f"produce request of {_RECORD_BYTES:,} bytes, with metrics"
    ratio = rounds.speed_ratio("with", "without")
    microseconds = rounds.median("with") / requests * 1e6
    return [Result(name, microseconds, "µs of CPU", "without metrics", ratio, Bar.on_ratio(at_least=1 / 1.02))]


def _run_round(times: RequestTimes, client: socket.socket, requests: int, of_produce: ApiTimes) -> float:
    """Return the CPU seconds of the node's thread for some requests, one after the other."""
    times.of[ApiKey.PRODUCE] = of_produce
    frame = _produce_request()
    before = run_sync(_thread_time(), _TIMEOUT_S)
    for _ in range(requests):
        client.sendall(frame)
        [size] = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        client.recv(size, socket.MSG_WAITALL)
    return run_sync(_thread_time(), _TIMEOUT_S) - before


async def _thread_time() -> float:
    return time.thread_time()


def _scrape(options: Options) -> Result:
    options.say(f"rendering {_SERIES:,} series")
    metric = Metric("tidelog_bench_received_bytes_total", Kind.COUNTER, "Bytes.", unit="bytes", labels=("topic",))
    family = Family(metric, {(f"topic-{number}",): float(number) for number in range(_SERIES)})
    exposition, taken = Exposition(), []
    for _ in range(options.pick(11, 3)):
        begun = time.thread_time()
        exposition.render([family], Format.TEXT)
        taken.append(time.thread_time() - begun)
    return Result(f"scrape of {_SERIES:,} series", sorted(taken)[len(taken) // 2] * 1e3, "ms of CPU")


def _produce_request() -> bytes:
    """Return a Produce request of one batch, with acks=1."""
    builder = RecordBatchBuilder()
    builder.append(None, bytes(_RECORD_BYTES), timestamp_ms=0)
    batch, name = builder.build(), _TOPIC.encode()
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    head = struct.pack(">hhih", 0, 7, 1, 5) + b"bench"
    return struct.pack(">i", len(head) + len(body)) + head + body


if __name__ == "__main__":
    run_alone(run)
