"""The transactional work of both clusters: commits, and the cost of transactions for producers and consumers."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from benchmarks.peers.client import Sender, consume, records_in
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Found
from benchmarks.peers.peer import Peer
from benchmarks.peers.tidelog_cluster import TidelogCluster
from benchmarks.peers.transaction_client import Committed, TransactionalSender
from benchmarks.result import Result
from benchmarks.rounds import quantile, seconds_of

_KIB = 1024
_PARTITIONS = 3
_MILLI = 1e3
_RECORDS = 10
_TRANSACTION_S = 0.1
_QUEUES_MIB = {32: 0.95, 4: None}
"""The sizes of the producers' queues, with the bar of each. The first is the default of Kafka's Java producer.

A commit waits until the queue is empty. With 4 MiB, that is a small part of the transaction, and the time between two
transactions, in which no record is sent, a large one.
"""
_LOGGED_RECORDS = 1_000
_ABORTED_SHARE = 10


def commits(clusters: Clusters) -> list[Result]:
    """Commit small transactions with one producer, one after the other."""
    topic, value, count = "commits", os.urandom(_KIB), clusters.options.pick(200, 50)
    senders = {}
    for peer in clusters.peers:
        create_topic(peer, topic, _PARTITIONS, clusters.replicas)
        senders[peer.name] = TransactionalSender(peer.bootstrap_servers, topic, _PARTITIONS)

    def commit(peer: Peer) -> Committed:
        clusters.options.say(f"transactions on {peer.name}")
        return senders[peer.name].commit_each(value, _RECORDS, count)

    found = clusters.in_turns(commit, rounds=clusters.options.pick(5, 3), warm_up=clusters.options.pick(2, 1))
    name = f"transactions of {_RECORDS} records over {_PARTITIONS} partitions, {clusters.text}"

    def percentile_ms(share: float, committed: Committed) -> float:
        return quantile(committed.commits_s, share) * _MILLI

    return [
        found.result(name, "commits/s", lambda committed: count / committed.seconds, "higher", at_least=1),
        found.result(f"{name}: p50 of a commit", "ms", partial(percentile_ms, 0.5), "lower"),
        found.result(f"{name}: p99 of a commit", "ms", partial(percentile_ms, 0.99), "lower", at_least=1),
    ]


def produce_in_transactions(clusters: Clusters) -> list[Result]:
    """Produce at full speed in transactions of 100 ms and without them, on each cluster."""
    return [line for queue_mib, bar in _QUEUES_MIB.items() for line in _produce(clusters, queue_mib, bar)]


def _produce(clusters: Clusters, queue_mib: int, at_least: float | None) -> list[Result]:
    value, count = os.urandom(_KIB), clusters.options.pick(100_000, 50_000)
    queue = {"queue.buffering.max.kbytes": queue_mib * _KIB}

    def variants(peer: Peer) -> dict[str, Callable[[], float]]:
        for topic in ("idempotent", "transactional"):
            create_topic(peer, topic, _PARTITIONS, clusters.replicas)
        servers = peer.bootstrap_servers
        plain = Sender(servers, "idempotent", enable_idempotence=True, **queue)
        transactional = TransactionalSender(servers, "transactional", _PARTITIONS, queue)
        return {
            "transactions": lambda: count / seconds_of(lambda: transactional.send(value, count, _TRANSACTION_S)),
            "without transactions": lambda: count / seconds_of(lambda: plain.send(value, count)),
        }

    name = (
        f"produce in transactions of {_TRANSACTION_S * _MILLI:g} ms, 1 KiB, queue of {queue_mib} MiB, {clusters.text}"
    )
    return _side_by_side(clusters, name, variants, clusters.options.pick(11, 3), at_least)


def consume_transactions(clusters: Clusters) -> list[Result]:
    """Read a log of transactions, one in ten of them aborted, at both isolation levels.

    Both readers pass the whole log; the rate is that of the log's records.
    """
    topic, transactions = "ended", clusters.options.pick(300, 100)
    decisions = [number % _ABORTED_SHARE > 0 for number in range(transactions)]
    records = transactions * _LOGGED_RECORDS
    committed = sum(decisions) * _LOGGED_RECORDS + _PARTITIONS

    def variants(peer: Peer) -> dict[str, Callable[[], float]]:
        clusters.options.say(f"writing {transactions} transactions to {peer.name}")
        servers = peer.bootstrap_servers
        create_topic(peer, topic, _PARTITIONS, clusters.replicas)
        sender = TransactionalSender(servers, topic, _PARTITIONS)
        sender.end_each(os.urandom(_KIB), _LOGGED_RECORDS, decisions)
        assert records_in(servers, topic, _PARTITIONS) > records
        read = partial(consume, servers, topic, _PARTITIONS)
        return {
            "read_committed": lambda: records / read(committed, isolation_level="read_committed"),
            "read_uncommitted": lambda: records / read(records + _PARTITIONS, isolation_level="read_uncommitted"),
        }

    name = f"consume a log of transactions, 1 KiB, {clusters.text}: read_committed"
    return _side_by_side(clusters, name, variants, clusters.options.pick(11, 3), at_least=0.95)


def _side_by_side(
    clusters: Clusters,
    name: str,
    variants: Callable[[Peer], dict[str, Callable[[], float]]],
    rounds: int,
    at_least: float | None,
) -> list[Result]:
    """Return each cluster's rate in records/s of the first of two variants, next to the second, with a bar on ours.

    The clusters take turns, and the variants of each change their order with every round: work that repeats itself is
    faster, and both variants follow themselves equally often.
    """
    work = {peer.name: variants(peer) for peer in clusters.peers}
    rates: dict[str, dict[str, list[float]]] = {peer: {key: [] for key in own} for peer, own in work.items()}
    for number in range(-1, rounds):
        for peer, own in work.items():
            clusters.options.say(f"{name}: {peer}")
            for key in own if number % 2 else reversed(own):
                rate = own[key]()
                if number >= 0:
                    rates[peer][key].append(rate)
    return [_ratio_line(peer, name, Found(rates[peer.name]), at_least) for peer in clusters.peers]


def _ratio_line(peer: Peer, name: str, found: Found[float], at_least: float | None) -> Result:
    if isinstance(peer, TidelogCluster):
        return found.result(name, "records/s", lambda rate: rate, "higher", at_least)
    return found.result(f"the same on {peer.name}", "records/s", lambda rate: rate, "higher")
