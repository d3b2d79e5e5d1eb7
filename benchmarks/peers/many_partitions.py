"""Records with random keys to thousands of partitions, each of which has three replicas."""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.load_client import Answer, LoadClient
from benchmarks.peers.load_results import cost, latencies, rate
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_COUNTS: Final = (1_000, 5_000)
_FEW: Final = (250, 1_000)
_BYTES: Final = 100
_LINGER: Final = "5ms"


def many_partitions(clusters: Clusters) -> list[Result]:
    """Produce to 1,000 partitions and to 5,000 more, so that the second figure is of a cluster with both."""
    client, counts = LoadClient(), clusters.options.pick(_COUNTS, _FEW)
    return [line for count in counts for line in _produce(clusters, client, count)]


def _produce(clusters: Clusters, client: LoadClient, partitions: int) -> list[Result]:
    topic = f"partitions-{partitions}"
    for peer in clusters.peers:
        clusters.options.say(f"creating {partitions:,} partitions on {peer.name}")
        create_topic(peer, topic, partitions, clusters.replicas)
    found = clusters.in_turns(partial(_send, clusters, client, topic), rounds=clusters.options.pick(5, 2))
    name = f"produce, {_BYTES} B, {partitions:,} partitions, {clusters.text}, acks=all, linger 5 ms"
    return [
        rate(found, name, "records", "records/s", 1),
        *latencies(found, name, "latency", ("p50", "p99")),
        *cost(found, name, "records", "record"),
    ]


def _send(clusters: Clusters, client: LoadClient, topic: str, peer: Peer) -> Answer:
    clusters.options.say(f"producing to {topic} on {peer.name}")
    seconds = clusters.options.pick(20, 5)
    flags = {"topic": topic, "seconds": seconds, "bytes": _BYTES, "linger": _LINGER}
    return client.run(peer, "produce", flags)
