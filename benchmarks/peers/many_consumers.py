"""200 consumers, each of which receives one record a second from a partition of its own."""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.load_client import Answer, LoadClient
from benchmarks.peers.load_results import cost, latencies
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_TOPIC: Final = "consumers"
_CONSUMERS: Final = 200
_RATE: Final = 200
_BYTES: Final = 100


def many_consumers(clusters: Clusters) -> list[Result]:
    """Measure the time from the record's due time to its arrival, and the cluster's CPU per delivered record."""
    client = LoadClient()
    for peer in clusters.peers:
        create_topic(peer, _TOPIC, _CONSUMERS, clusters.replicas)
    found = clusters.in_turns(partial(_deliver, clusters, client), rounds=clusters.options.pick(5, 2))
    name = f"{_CONSUMERS} consumers, a record a second each, {_BYTES} B, {clusters.text}"
    return [
        *latencies(found, f"{name}: end to end", "end_to_end", ("p50", "p99"), (None, 1)),
        *cost(found, name, "records", "record"),
    ]


def _deliver(clusters: Clusters, client: LoadClient, peer: Peer) -> Answer:
    clusters.options.say(f"{_CONSUMERS} consumers of {peer.name}")
    seconds = clusters.options.pick(30, 8)
    flags = {"topic": _TOPIC, "consumers": _CONSUMERS, "rate": _RATE, "bytes": _BYTES, "seconds": seconds}
    return client.run(peer, "live", flags)
