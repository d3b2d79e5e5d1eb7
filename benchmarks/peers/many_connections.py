"""The memory that 5,000 idle connections add to one node, and the requests of 500 busy ones beside them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks import process
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Found
from benchmarks.peers.load_client import Answer, LoadClient
from benchmarks.peers.load_results import cost, latencies, rate
from benchmarks.peers.peer import Peer
from benchmarks.result import Result

_TOPIC: Final = "connections"
_PARTITIONS: Final = 3
_IDLE, _ACTIVE, _BYTES = 5_000, 500, 100
_LEADER: Final = 1
_BROKER: Final = 1
_MB: Final = 1e6
_SETTLED_S: Final = 2.0
"""The time after which the pages of closed connections, and of their start, have been given back."""


def many_connections(clusters: Clusters) -> list[Result]:
    """Send requests from 500 connections, alone and beside 5,000 idle ones, which are opened twice.

    The second 5,000 show whether the memory of the first is used again. Memory has no ratio: a JVM whose heap has room
    does not grow.

    Raises:
        RuntimeError: A broker has closed idle connections.
    """
    client = LoadClient()
    for peer in clusters.peers:
        create_topic(peer, _TOPIC, _PARTITIONS, clusters.replicas)
    load = partial(_send, clusters, client)
    rounds = clusters.options.pick(5, 2)
    alone = clusters.in_turns(load, rounds, warm_up=clusters.options.pick(4, 2))
    with contextlib.ExitStack() as idle:
        added = Found({peer.name: [idle.enter_context(_idle(clusters, client, peer))] for peer in clusters.peers})
        beside = clusters.in_turns(load, rounds)
    again: dict[str, list[float]] = {}
    for peer in clusters.peers:
        with _idle(clusters, client, peer) as mb:
            again[peer.name] = [added.rounds[peer.name][0] + mb]
    name = f"{_ACTIVE} connections, {_BYTES} B, {clusters.text}, acks=1"
    crowd = f"{_IDLE:,} idle connections"
    return [
        added.result(f"{crowd}: memory", "MB", lambda mb: mb, None, at_most_value=25),
        Found(again).result(f"{crowd}, closed and opened again: memory", "MB", lambda mb: mb, None),
        *_rows(alone, name, has_bar=False),
        *_rows(beside, f"{name}, beside {crowd}", has_bar=True),
    ]


def _rows(found: Found[Answer], name: str, *, has_bar: bool) -> list[Result]:
    return [
        rate(found, name, "requests", "requests/s", 1 if has_bar else None),
        *latencies(found, name, "latency", ("p50", "p99")),
        *cost(found, name, "requests", "request"),
    ]


def _send(clusters: Clusters, client: LoadClient, peer: Peer) -> Answer:
    clusters.options.say(f"{_ACTIVE} connections to {peer.name}, acks=1")
    count = clusters.options.pick(100_000, 20_000)
    flags = {"topic": _TOPIC, "clients": _ACTIVE, "acks": _LEADER, "requests": count, "bytes": _BYTES}
    return client.run(peer, "requests", flags)


@contextlib.contextmanager
def _idle(clusters: Clusters, client: LoadClient, peer: Peer) -> Iterator[float]:
    """Open idle connections, yield the MB by which the broker's own pages have grown, and close them."""
    clusters.options.say(f"opening {_IDLE:,} connections to {peer.name}")
    pid = peer.broker_pid(_BROKER)
    before = process.anonymous_bytes(pid)
    with client.started(peer, "idle", {"connections": _IDLE}) as running:
        running.first_line()
        time.sleep(_SETTLED_S)
        yield (process.anonymous_bytes(pid) - before) / _MB
        broken = running.answer()["broken"]
    time.sleep(_SETTLED_S)
    if broken:
        raise RuntimeError(f"{peer.name} has closed {broken} of {_IDLE:,} idle connections")
