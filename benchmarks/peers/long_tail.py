"""The slowest records of a steady load beside compaction, retention and a group that rebalances again and again."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Final

from benchmarks.peers.client import first_offset, wait_for
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.load_client import Answer, Flags, LoadClient
from benchmarks.peers.load_results import cost, latencies
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

SETTINGS: Final = {
    "log.retention.check.interval.ms": 1_000,
    "log.cleaner.backoff.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
}
"""So that segments are compacted and deleted all the time, and each join is a rebalance at once."""
_STEADY, _COMPACTED, _RETAINED = "steady", "compacted", "retained"
_SEGMENT_BYTES: Final = 1 << 20
_SMALL_SEGMENTS: Final = {"segment.bytes": str(_SEGMENT_BYTES)}
_CONFIGS: Final = {
    _STEADY: {},
    _COMPACTED: {**_SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    _RETAINED: {**_SMALL_SEGMENTS, "retention.bytes": str(_SEGMENT_BYTES)},
}
_PARTITIONS: Final = {_STEADY: 6, _COMPACTED: 1, _RETAINED: 1}
_RATE, _BYTES, _CONSUMERS = 500, 1_024, 3
_BESIDE: Final = {"rate": 1_000, "bytes": 1_024, "consumers": 0, "seconds": 3_600}
_MEMBERS: Final = {"members": 4, "pause": "1s", "seconds": 3_600}
_PERCENTILES: Final = ("p50", "p99", "p99.9", "max")


def long_tail(clusters: Clusters) -> list[Result]:
    """Send 500 records a second for five minutes, and measure all of them.

    Raises:
        RuntimeError: A load beside it has failed.
        TimeoutError: Nothing was compacted or deleted.
    """
    client = LoadClient()
    for peer in clusters.peers:
        for topic, config in _CONFIGS.items():
            create_topic(peer, topic, _PARTITIONS[topic], clusters.replicas, config)
    warm_up_s, seconds = clusters.options.pick((60, 300), (10, 30))
    clusters.in_turns(partial(_flow, clusters, client, warm_up_s), rounds=0)
    found = clusters.in_turns(partial(_flow, clusters, client, seconds), rounds=clusters.options.pick(2, 1), warm_up=0)
    for peer in clusters.peers:
        for topic in (_COMPACTED, _RETAINED):
            _wait_for_housekeeping(peer, topic)
    name = f"{_RATE} records/s of 1 KiB for {seconds} s, {clusters.text}, acks=all, beside housekeeping"
    return [
        *latencies(found, f"{name}: produce", "produce", _PERCENTILES, (None, 1, 1)),
        *latencies(found, f"{name}: end to end", "end_to_end", _PERCENTILES, (None, 1, 1)),
        *cost(found, name, "records", "record"),
    ]


def _flow(clusters: Clusters, client: LoadClient, seconds: int, peer: Peer) -> Answer:
    clusters.options.say(f"a steady load on {peer.name} for {seconds} s")
    beside: list[tuple[str, Flags]] = [
        ("live", {"topic": _COMPACTED, "keys": 1_000, **_BESIDE}),
        ("live", {"topic": _RETAINED, **_BESIDE}),
        ("group", {"topic": _STEADY, **_MEMBERS}),
    ]
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(client.started(peer, command, flags)) for command, flags in beside]
        steady = {"topic": _STEADY, "rate": _RATE, "bytes": _BYTES, "consumers": _CONSUMERS, "seconds": seconds}
        answer = client.run(peer, "live", steady, seconds + 300.0)
        for other in others:
            other.check()
    return answer


def _wait_for_housekeeping(peer: Peer, topic: str) -> None:
    what = f"{peer.name} has compacted or deleted the first record of {topic}"
    wait_for(lambda: first_offset(peer.bootstrap_servers, topic, 0) > 0, what)
