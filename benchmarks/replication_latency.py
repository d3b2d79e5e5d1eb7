"""The latency of a record until all replicas have it, and the time of each step.

    python -m benchmarks.replication_latency [--quick]

Records of 1 KiB, 200 a second, are each sent at once (``linger.ms=0``) with acks=all to a partition with three
replicas, on three controllers and three nodes of this machine. The nodes record the times of appends, replication and
commits (:mod:`benchmarks.replication_trace`), the producer's stream those of requests and answers. All use one clock,
so the steps of a record add up to its latency. They are shown for the median, as the mean of the records around it, and
for the tail, as the mean of the slowest hundredth.
"""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.options import Options
from benchmarks.replication_load import Leadership, Sent, SteadyLoad
from benchmarks.replication_trace import TRACE_FILE, NodeTrace
from benchmarks.result import Bar, Result
from benchmarks.rounds import quantile
from benchmarks.suite import run_alone
from tidelog.producer.requests import EncodedRequest
from tidelog.producer.stream import NodeStream
from tidelog.testing import LocalCluster
from tidelog.testing.process import Place
from tidelog.v1 import log_service_pb2 as pb

_TOPIC = "latency"
_RATE, _VALUE_BYTES = 200, 1024
_WARM_UP_S = 2.0
_MILLI = 1e3
_HOPS = (
    "producer: until it is sent",
    "to the leader, decoded",
    "leader: append",
    "to the slower follower",
    "follower: append",
    "its next fetch: committed",
    "answer to the producer",
    "delivery callback",
)


class _Exchange(NamedTuple):
    """The times at which the stream received a request and its answer."""

    sent_s: float
    answered_s: float


def run(options: Options) -> list[Result]:
    """Send at a steady rate for a minute (quick: five seconds)."""
    seconds = options.pick(60.0, 5.0)
    place = Place(launcher=("-m", "benchmarks.replication_trace"))
    with LocalCluster(place=lambda kind, _: place if kind == "node" else Place()) as cluster:
        with (
            Leadership(cluster, _TOPIC, 1) as leadership,
            _traced_streams() as exchanges,
            SteadyLoad(cluster.bootstrap_servers, _TOPIC, 1, _RATE, _VALUE_BYTES, {}) as load,
        ):
            leader = leadership.busiest()[0]
            options.say(f"sending {_RATE} records of {_VALUE_BYTES} bytes a second")
            time.sleep(_WARM_UP_S)
            start_s = time.monotonic()
            time.sleep(seconds)
        traces = {}
        for node in cluster.nodes.values():
            node.stop()
            traces[node.id] = NodeTrace.read(_trace_path(node.properties_path))
    sent = [record for record in load.acknowledged[0] if record.produced_s >= start_s]
    return _results(sent, list(_split(sent, exchanges, traces, leader)))


def _results(sent: Sequence[Sent], split: Sequence[Sequence[float]]) -> list[Result]:
    latencies = [record.latency_s for record in sent]
    name = f"send 1 KiB, acks=all, 3 replicas, {_RATE}/s"
    ordered = sorted(split, key=sum)
    middle = ordered[int(0.45 * len(ordered)) : int(0.55 * len(ordered)) + 1]
    tail = ordered[int(0.99 * len(ordered)) :]
    return [
        Result(f"{name}: p50", statistics.median(latencies) * _MILLI, "ms", bar=Bar.on_value(at_most=5)),
        Result(f"{name}: p99", quantile(latencies, 0.99) * _MILLI, "ms"),
        Result(f"{name}: records that could be followed", 100 * len(split) / len(sent), "%"),
        *_hop_results("p50", middle),
        *_hop_results("p99", tail),
    ]


def _hop_results(of: str, records: Sequence[Sequence[float]]) -> list[Result]:
    means = [statistics.mean(hop) for hop in zip(*records, strict=True)]
    return [Result(f"of its {of}: {hop}", mean * _MILLI, "ms") for hop, mean in zip(_HOPS, means, strict=True)]


def _split(
    sent: Sequence[Sent], exchanges: Mapping[int, _Exchange], traces: Mapping[int, NodeTrace], leader: int
) -> Iterator[tuple[float, ...]]:
    """Yield the seconds of each step of each record that was alone in its batch."""
    partition = f"{_TOPIC}-0"
    appended = {offset: (begin, end) for name, offset, begin, end in traces[leader].appended if name == partition}
    copied = [_Notes(trace.copied, partition) for node, trace in traces.items() if node != leader]
    committed = _Notes(traces[leader].committed, partition)
    for record in sent:
        exchange, append = exchanges.get(record.offset), appended.get(record.offset)
        copies = [copy for notes in copied if (copy := notes.first_above(record.offset)) is not None]
        commit = committed.first_above(record.offset)
        if exchange is None or append is None or commit is None or len(copies) < len(copied):
            continue
        copy_begin, copy_end = max(copies, key=lambda copy: copy[-1])
        times = [record.produced_s, exchange.sent_s, *append, copy_begin, copy_end, *commit]
        times += [exchange.answered_s, record.acknowledged_s]
        yield tuple(later - earlier for earlier, later in pairwise(times))


class _Notes:
    """A node's notes of a partition with growing offsets, for lookup by offset."""

    def __init__(self, notes: Sequence[tuple[Any, ...]], partition: str) -> None:
        self._notes = [note for note in notes if note[0] == partition]
        self._offsets = [note[1] for note in self._notes]

    def first_above(self, offset: int) -> tuple[float, ...] | None:
        """Return the times of the first note above the offset."""
        index = bisect_right(self._offsets, offset)
        return tuple(self._notes[index][2:]) if index < len(self._notes) else None


@contextmanager
def _traced_streams() -> Iterator[Mapping[int, _Exchange]]:
    """Yield the exchanges of this process's producers, by the first offset of the batch, with one batch per request."""
    exchanges: dict[int, _Exchange] = {}
    send = NodeStream.send

    async def traced_send(
        self: NodeStream, request: Awaitable[EncodedRequest], timeout_s: float, *, wait: bool = True
    ) -> pb.ProduceResponse:
        sent_s = time.monotonic()
        response = await send(self, request, timeout_s, wait=wait)
        answered_s = time.monotonic()
        for topic in response.topics:
            exchanges.update((p.base_offset, _Exchange(sent_s, answered_s)) for p in topic.partitions)
        return response

    NodeStream.send = traced_send  # type: ignore[method-assign]
    try:
        yield exchanges
    finally:
        NodeStream.send = send  # type: ignore[method-assign]


def _trace_path(properties: Path) -> Path:
    return properties.parent / TRACE_FILE


if __name__ == "__main__":
    run_alone(run)
