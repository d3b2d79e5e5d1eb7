"""The work that both clusters do alternately while both run."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.peers.client import ATTENTIVE, Outage, Sender, Topics, acknowledge_first_record, consume, records_in
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Cost, Found, work_results
from benchmarks.peers.peer import Memory, Peer
from benchmarks.result import Result
from benchmarks.rounds import quantile

_KIB, _SMALL = 1024, 100
_PARTITIONS = 3
_FAILOVER = "failover"
_MILLI = 1e3


def cold_starts(clusters: Clusters) -> list[Result]:
    """Start each cluster alone, repeatedly, and measure from the launch of its processes to the first acknowledged
    record.
    """

    def start(peer: Peer) -> float:
        clusters.options.say(f"cold start of {peer.name}, {peer.size}")
        started_s = time.monotonic()
        peer.start()
        try:
            acknowledge_first_record(peer.bootstrap_servers, "first", clusters.replicas)
            return time.monotonic() - started_s
        finally:
            peer.close()

    found = clusters.in_turns(start, rounds=clusters.options.pick(5, 1), warm_up=clusters.options.pick(1, 0))
    name = f"cold start of {clusters.peers[0].size} to the first acknowledged record"
    return [found.result(name, "s", lambda seconds: seconds, "lower", at_least=3.34)]


def idle(clusters: Clusters) -> list[Result]:
    """Measure the idle cost of the clusters."""
    seconds = clusters.options.pick(10.0, 3.0)
    clusters.options.say("letting both be idle")
    time.sleep(seconds)
    before = {peer.name: peer.cpu_seconds() for peer in clusters.peers}
    time.sleep(seconds)
    used = Found({peer.name: [(peer.cpu_seconds() - before[peer.name]) / seconds] for peer in clusters.peers})
    return [
        *memory(clusters, "idle"),
        used.result("idle: CPU of the cluster", "% of a core", lambda share: 100 * share, "lower"),
    ]


def memory(clusters: Clusters, when: str) -> list[Result]:
    """Return the current memory of all processes."""
    found: Found[Memory] = Found({peer.name: [peer.memory()] for peer in clusters.peers})
    name = f"memory of {clusters.peers[0].size}, {when}"
    return [
        found.result(f"{name}: resident", "MB", lambda memory: memory.resident, "lower", at_least=4),
        found.result(f"{name}: proportional", "MB", lambda memory: memory.proportional, "lower"),
    ]


def produce(clusters: Clusters, at_least: float) -> list[Result]:
    """Produce with the client's default batching to topics of three partitions."""
    return [line for size in (_KIB, _SMALL) for line in _produce(clusters, size, at_least)]


def consume_from_cache(clusters: Clusters) -> list[Result]:
    """Read records written before. Topics with too few are filled."""
    return [line for size in (_KIB, _SMALL) for line in _consume(clusters, size)]


def synchronous_latency(clusters: Clusters) -> list[Result]:
    """Send records one at a time, each after all replicas have acknowledged the previous one.

    Measure this first: so many requests also let the JVM compile the code on their path.
    """
    topic, count, value = "latency", clusters.options.pick(2_000, 500), os.urandom(_KIB)
    senders = {}
    for peer in clusters.peers:
        create_topic(peer, topic, 1, clusters.replicas)
        senders[peer.name] = Sender(peer.bootstrap_servers, topic, linger_ms=0)

    def send(peer: Peer) -> list[float]:
        clusters.options.say(f"synchronous produce to {peer.name}")
        return senders[peer.name].latencies_s(value, count)

    found = clusters.in_turns(send, rounds=clusters.options.pick(5, 3), warm_up=2)
    name = f"synchronous produce, 1 KiB, {clusters.text}, acks=all"
    return [
        found.result(f"{name}: p50", "ms", lambda taken: quantile(taken, 0.5) * _MILLI, "lower", at_least=1),
        found.result(f"{name}: p99", "ms", lambda taken: quantile(taken, 0.99) * _MILLI, "lower", at_least=0.667),
    ]


def failover(clusters: Clusters) -> list[Result]:
    """Kill the leader of a partition, and measure until a record sent afterwards is acknowledged."""
    for peer in clusters.peers:
        create_topic(peer, _FAILOVER, 1, clusters.replicas)
    rounds = clusters.options.pick((5, 3), (2, 1))
    swift, usual = (
        clusters.in_turns(partial(_kill_leader, clusters, settings), rounds=count, warm_up=0)
        for settings, count in zip((ATTENTIVE, {}), rounds, strict=True)
    )
    name = "leader killed to writable again"
    return [
        swift.result(name, "s", lambda seconds: seconds, "lower", at_least=1),
        usual.result(f"{name}, the client's default intervals", "s", lambda seconds: seconds, "lower"),
    ]


def _kill_leader(clusters: Clusters, settings: Mapping[str, Any], peer: Peer) -> float:
    clusters.options.say(f"killing a leader of {peer.name}")
    topics = Topics(peer.bootstrap_servers)
    leader = topics.leader(_FAILOVER, 0)
    outage = Outage(peer.bootstrap_servers, _FAILOVER, 0, settings)
    # Vary the time since the last heartbeat.
    time.sleep(random.uniform(0, 0.3))
    seconds = outage.seconds_after(lambda: peer.kill(leader))
    peer.restart(leader)
    topics.wait_whole(_FAILOVER)
    return seconds


def _produce(clusters: Clusters, size: int, at_least: float) -> list[Result]:
    count, value = _count(clusters, size), os.urandom(size)
    senders = {}
    for peer in clusters.peers:
        create_topic(peer, _topic(size), _PARTITIONS, clusters.replicas)
        senders[peer.name] = Sender(peer.bootstrap_servers, _topic(size))

    def send(peer: Peer) -> Cost:
        clusters.options.say(f"producing {count:,} records of {size} bytes to {peer.name}, {clusters.text}")
        return cost_of(peer, lambda: senders[peer.name].send(value, count))

    found = clusters.in_turns(send, rounds=clusters.options.pick(5, 2), warm_up=clusters.options.pick(2, 1))
    name = f"produce, {_text(size)}, {clusters.text}, acks=all"
    return work_results(name, found, count, size, at_least=at_least)


def _consume(clusters: Clusters, size: int) -> list[Result]:
    count = 2 * _count(clusters, size)
    for peer in clusters.peers:
        _fill(clusters, peer, size, count)

    def read(peer: Peer) -> Cost:
        clusters.options.say(f"consuming {count:,} records of {size} bytes from {peer.name}")
        return cost_of(peer, lambda: consume(peer.bootstrap_servers, _topic(size), _PARTITIONS, count))

    found = clusters.in_turns(read, rounds=clusters.options.pick(5, 2))
    return work_results(f"consume from cache, {_text(size)}, {clusters.text}", found, count, size, at_least=0.8)


def _fill(clusters: Clusters, peer: Peer, size: int, count: int) -> None:
    create_topic(peer, _topic(size), _PARTITIONS, clusters.replicas)
    missing = count - records_in(peer.bootstrap_servers, _topic(size), _PARTITIONS)
    if missing > 0:
        Sender(peer.bootstrap_servers, _topic(size)).send(os.urandom(size), missing)


def _count(clusters: Clusters, size: int) -> int:
    """Return the number of records per round, for a second or two of work. There are more without replication."""
    count = clusters.options.pick(150_000, 50_000) if size == _KIB else clusters.options.pick(600_000, 200_000)
    return count if clusters.replicas > 1 else 3 * count


def _topic(size: int) -> str:
    return f"values-{size}"


def _text(size: int) -> str:
    return "1 KiB" if size == _KIB else f"{size} B"


def cost_of(peer: Peer, work: Callable[[], object]) -> Cost:
    """Do some work, and return its time and the CPU time of the cluster and of the client."""
    cluster_s, client_s, started_s = peer.cpu_seconds(), _own_cpu_seconds(), time.perf_counter()
    work()
    taken_s = time.perf_counter() - started_s
    return Cost(taken_s, peer.cpu_seconds() - cluster_s, _own_cpu_seconds() - client_s)


def _own_cpu_seconds() -> float:
    """Return the CPU seconds of all threads of this process, which only runs the client."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
