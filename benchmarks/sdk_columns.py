"""Whole columns in one call: ``produce_batch()`` and ``consume_arrow()`` compared with confluent-kafka's loops.

Everything counts, from the first call until the last record is acknowledged or in the application's hands.
confluent-kafka sends to memory of the same process, Tidelog through gRPC to a node that writes to its disk. With larger
values the disk dominates, so the bar applies to small ones, where the cost per record dominates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate, timed
from benchmarks.sdk_peer import PEER, PeerCluster
from tidelog.consumer import Consumer
from tidelog.message import TopicPartition
from tidelog.producer import Producer

WRITTEN, READ = "columns-written", "columns-read"
READ_PARTITIONS = 4
_KEPT = 40_000
"""The mock cluster stores 5 MiB of a partition."""
_LOOP = "confluent-kafka's produce() loop on its mock cluster"
_CONSUME = "confluent-kafka's consume() on its mock cluster"


def run(options: Options, bootstrap_servers: str) -> list[Result]:
    """Measure columns of small and larger values, with and without a codec and keys, and reading into Arrow."""
    count = options.pick(300_000, 100_000)
    small = [b"%016d" % n for n in range(count)]
    values = [b"%010d" % n * 10 for n in range(count)]
    keys = pyarrow.array([b"key %d" % (n % 1_000) for n in range(count)], pyarrow.binary())
    table = pyarrow.table({"value": pyarrow.array(small, pyarrow.binary()), "key": keys})
    cases = (
        _Case("16 bytes", small, pyarrow.array(small, pyarrow.binary()), bar=Bar.on_ratio(at_least=5)),
        _Case("16 bytes, a list", small, small),
        _Case("16 bytes, with keys", small, table),
        _Case("100 bytes", values, pyarrow.array(values, pyarrow.binary())),
        _Case("100 bytes, lz4", values, pyarrow.array(values, pyarrow.binary()), "lz4"),
    )
    results = [_produced(options, bootstrap_servers, case) for case in cases]
    return [*results, _consumed(options, bootstrap_servers, values)]


@dataclass(frozen=True, slots=True)
class _Case:
    """The same values for both sides: one by one for confluent-kafka, as ``data`` for Tidelog."""

    name: str
    values: list[bytes]
    data: Any
    codec: str = "none"
    bar: Bar | None = None


def _produced(options: Options, servers: str, case: _Case) -> Result:
    name = f"produce_batch(), values of {case.name}"
    options.say(name)
    peer = PeerCluster(compression_type=case.codec)
    with Producer({"bootstrap.servers": servers, "compression.type": case.codec}) as producer:
        ours = timed(partial(producer.produce_batch, WRITTEN, case.data))
        taken = alternate({"ours": ours, PEER: _loop(peer, case.values)}, options.pick(9, 3), warm_up=1)
    peer.close()
    rate = len(case.values) / taken.median("ours") / 1e6
    return Result(name, rate, "M records/s", _LOOP, taken.speed_ratio("ours", PEER), case.bar)


def _consumed(options: Options, servers: str, values: list[bytes]) -> Result:
    peer = PeerCluster()
    options.say("consume_arrow(): filling the topics")
    values, count = values[:_KEPT], _KEPT * READ_PARTITIONS
    with Producer({"bootstrap.servers": servers}) as producer:
        for partition in range(READ_PARTITIONS):
            producer.produce_batch(READ, values, partition=partition)
            for value in values:
                peer.producer.produce(READ, value, partition=partition)
    assert peer.producer.flush(60) == 0
    options.say("consume_arrow()")
    variants = {"ours": timed(lambda: _read_arrow(servers, count)), PEER: _consume(peer, count)}
    taken = alternate(variants, options.pick(9, 3), warm_up=1)
    rate = count / taken.median("ours") / 1e6
    ratio = taken.speed_ratio("ours", PEER)
    peer.close()
    return Result(
        "consume_arrow(), values of 100 bytes", rate, "M records/s", _CONSUME, ratio, Bar.on_ratio(at_least=3)
    )


def _loop(peer: PeerCluster, values: list[bytes]) -> Callable[[], float]:
    def work() -> None:
        produce = peer.producer.produce
        for value in values:
            produce(WRITTEN, value, partition=0)
        assert peer.producer.flush(60) == 0

    return timed(work)


def _consume(peer: PeerCluster, count: int) -> Callable[[], float]:
    def work() -> None:
        consumer = peer.consumer(READ, READ_PARTITIONS)
        left = count
        while left > 0:
            left -= len(consumer.consume(min(left, 10_000), 1.0))
        consumer.close()

    return timed(work)


def _read_arrow(servers: str, count: int) -> None:
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(READ, partition, 0) for partition in range(READ_PARTITIONS)])
        left: Any = count
        while left > 0:
            left -= consumer.consume_arrow(min(left, 100_000), 1.0).num_rows
