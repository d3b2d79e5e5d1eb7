"""Small produce requests of many connections, each of which waits for the answer before it sends the next one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.load_client import Answer, LoadClient
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_TOPIC: Final = "requests"
_PARTITIONS: Final = 3
_PARTITIONS_OF_A_MACHINE: Final = 4
_MACHINE: Final = "1 machine of 2 cores, RF 1"
_BYTES: Final = 100
_ALL, _LEADER, _NONE = -1, 1, 0
_TEXTS: Final = {_ALL: "acks=all", _LEADER: "acks=1", _NONE: "acks=0"}
_MICRO, _MILLI = 1e6, 1e3


@dataclass(frozen=True, slots=True)
class _Load:
    """The number of connections, their ``acks``, and whether the row has the bar of a rate or of the latency.

    ``warm_up`` is the number of rounds that do not count.
    """

    clients: int
    acks: int
    has_rate_bar: bool = False
    has_p99_bar: bool = False
    warm_up: int = 2


_LOADS: Final = (
    _Load(8, _ALL),
    _Load(100, _ALL, has_rate_bar=True),
    _Load(400, _ALL, has_p99_bar=True),
    _Load(100, _LEADER),
    _Load(100, _NONE),
)


_LOADS_OF_A_MACHINE: Final = (
    # A JVM needs some hundred thousand requests until it has compiled their path.
    _Load(100, _ALL, has_rate_bar=True, warm_up=10),
    _Load(400, _ALL, has_rate_bar=True, has_p99_bar=True),
    _Load(100, _NONE),
)


def requests(clusters: Clusters) -> list[Result]:
    """Send single records from 8, 100 and 400 connections."""
    client = LoadClient()
    for peer in clusters.peers:
        create_topic(peer, _TOPIC, _PARTITIONS, clusters.replicas)
    return [line for load in _LOADS for line in _measure(clusters, client, load, clusters.text)]


def requests_to_a_machine(clusters: Clusters) -> list[Result]:
    """Send single records to all the brokers of one machine, from 100 and 400 connections."""
    client = LoadClient()
    for peer in clusters.peers:
        create_topic(peer, _TOPIC, _PARTITIONS_OF_A_MACHINE, 1)
    return [line for load in _LOADS_OF_A_MACHINE for line in _measure(clusters, client, load, _MACHINE)]


def _measure(clusters: Clusters, client: LoadClient, load: _Load, text: str) -> list[Result]:
    options = clusters.options
    found = clusters.in_turns(
        partial(_send, clusters, client, load), rounds=options.pick(5, 2), warm_up=options.pick(load.warm_up, 1)
    )
    name = f"{load.clients} connections, {_BYTES} B, {text}, {_TEXTS[load.acks]}"
    rate_bar = 1 if load.has_rate_bar else None
    lines = [
        found.result(name, "requests/s", lambda served: served["requests"] / served["seconds"], "higher", rate_bar),
        found.result(
            f"{name}: CPU of the cluster",
            "µs/request",
            lambda served: served["cpu_s"] / served["requests"] * _MICRO,
            "lower",
            rate_bar,
        ),
    ]
    if load.acks != _NONE:
        p99_bar = 1 if load.has_p99_bar else None
        lines += [
            found.result(f"{name}: p50", "ms", lambda served: served["latency"]["p50_s"] * _MILLI, "lower"),
            found.result(f"{name}: p99", "ms", lambda served: served["latency"]["p99_s"] * _MILLI, "lower", p99_bar),
        ]
    return lines


def _send(clusters: Clusters, client: LoadClient, load: _Load, peer: Peer) -> Answer:
    count = clusters.options.pick(30_000, 10_000)
    clusters.options.say(f"{load.clients} connections to {peer.name}, {_TEXTS[load.acks]}, {peer.size}")
    flags = {"topic": _TOPIC, "clients": load.clients, "acks": load.acks, "requests": count, "bytes": _BYTES}
    return client.run(peer, "requests", flags)
