"""Consumer groups whose members leave and join without a pause, with each protocol."""

from __future__ import annotations

from functools import partial
from typing import Final

from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.load_client import Answer, LoadClient
from benchmarks.peers.load_results import cost, latencies, rate
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_HEARTBEAT_MS: Final = 100
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.min.heartbeat.interval.ms": _HEARTBEAT_MS,
    "group.consumer.heartbeat.interval.ms": _HEARTBEAT_MS,
}
"""Members of both protocols send a heartbeat each 100 ms, and hear of a rebalance by its answer."""
_TOPIC: Final = "churn"
_PARTITIONS, _MEMBERS = 60, 20
_PROTOCOLS: Final = {
    "range": "classic protocol, range",
    "cooperative-sticky": "classic protocol, cooperative-sticky",
    "consumer": "consumer protocol",
}


def group_churn(clusters: Clusters) -> list[Result]:
    """Let members leave and join, each as soon as the others share all partitions evenly."""
    client = LoadClient()
    for peer in clusters.peers:
        create_topic(peer, _TOPIC, _PARTITIONS, clusters.replicas)
    return [line for protocol in _PROTOCOLS for line in _churn(clusters, client, protocol)]


def _churn(clusters: Clusters, client: LoadClient, protocol: str) -> list[Result]:
    found = clusters.in_turns(partial(_change, clusters, client, protocol), rounds=clusters.options.pick(3, 1))
    name = f"group of {_MEMBERS}, {_PARTITIONS} partitions, {_PROTOCOLS[protocol]}, {clusters.text}"
    return [
        rate(found, f"{name}: members that leave or join", "changes", "changes/s", 1),
        *latencies(found, f"{name}: a member leaves", "leave", ("p50", "p99")),
        *latencies(found, f"{name}: a member joins", "join", ("p50", "p99")),
        *cost(found, name, "changes", "change"),
    ]


def _change(clusters: Clusters, client: LoadClient, protocol: str, peer: Peer) -> Answer:
    clusters.options.say(f"{_PROTOCOLS[protocol]}: members of a group on {peer.name} leave and join")
    seconds = clusters.options.pick(20, 5)
    group = {"group": f"churn-{protocol}", "members": _MEMBERS, "protocol": protocol}
    flags = {"topic": _TOPIC, **group, "heartbeat": f"{_HEARTBEAT_MS}ms", "seconds": seconds}
    return client.run(peer, "group", flags)
