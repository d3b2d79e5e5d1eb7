"""Spark's reads and writes: ``format("tidelog")`` next to Spark's own Kafka source and sink, in one session.

Spark's Kafka source reads Apache Kafka, and the Kafka listener of Tidelog, whose figures show how much of a difference
is the cluster's. All variants take turns, and read or write the same records.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from benchmarks import process
from benchmarks.peers.client import Sender, Topics, records_in
from benchmarks.peers.clusters import Clusters, create_topic
from benchmarks.peers.comparison import Found
from benchmarks.peers.peer import Peer
from benchmarks.peers.spark_session import TUPLES, spark_session
from benchmarks.peers.spark_streams import sustained, triggers
from benchmarks.peers.tidelog_cluster import TidelogCluster
from benchmarks.result import Result
from benchmarks.rounds import in_turns, seconds_of

_BYTES = 100
_PARTITIONS = 2
_TOPIC = "values"
_TUPLE_SHARE = 5
"""Tuples are so slow that they get a fifth of the records."""
_OURS = "Tidelog"
_WITH_TUPLES = "the same source with tuples"
_SEMANTICS = {"at-least-once": 1.5, "exactly-once": 1.0}
"""The guarantees of the sink, with the bar of each."""


@dataclass(frozen=True, slots=True)
class Connector:
    """A source and sink of Spark, and the cluster that it uses."""

    name: str
    format: str
    options: Mapping[str, str]

    def reader(self, spark: SparkSession, topic: str = _TOPIC) -> DataFrameReader:
        """Return a reader of a whole topic."""
        return spark.read.format(self.format).options(**self.options, subscribe=topic, startingOffsets="earliest")


@dataclass(frozen=True, slots=True)
class Work:
    """Some work of Spark: the number of records, the seconds that count, and the CPU seconds of Spark and the cluster.

    The CPU seconds say more than the others on a machine that is busy with other work.
    """

    records: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """The records per second."""
        return self.records / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        """The CPU seconds for a million records."""
        return self.cpu_s / self.records * 1e6


@dataclass(frozen=True, slots=True)
class SparkBench:
    """The session, the connectors with Tidelog's first, and the number of records of each read and write."""

    clusters: Clusters
    spark: SparkSession
    folder: Path
    ours: Connector
    others: tuple[Connector, ...]
    records: int

    @property
    def text(self) -> str:
        """The amount of work as the table shows it."""
        return f"{self.records / 1e6:g} million records of {_BYTES} B"

    def in_turns(self, variants: Mapping[str, Callable[[], Work]], warm_up: int = 1) -> dict[str, list[Work]]:
        """Do the work of each variant once per round, and return it of all rounds."""
        return in_turns(variants, self.clusters.options.pick(5, 2), warm_up)

    def measure(self, connector: Connector, records: int, work: Callable[[], float]) -> Work:
        """Do some work with a connector, which returns the seconds that count."""
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None, "the session has ended"
        peer, spark_pid = self.peer_of(connector), gateway.proc.pid

        def cpu_seconds() -> float:
            return process.tree_cpu_seconds(spark_pid) + peer.cpu_seconds()

        before = cpu_seconds()
        seconds = work()
        return Work(records, seconds, cpu_seconds() - before)

    def of_each_connector(self, work: Callable[[Connector], Work]) -> dict[str, Callable[[], Work]]:
        """Return the work of each connector as a variant."""
        return {connector.name: partial(work, connector) for connector in (self.ours, *self.others)}

    def peer_of(self, connector: Connector) -> Peer:
        """Return the cluster that a connector uses."""
        return next(peer for peer in self.clusters.peers if _serves(peer, connector))

    def lines(self, name: str, work: Mapping[str, Sequence[Work]], ours: str, at_least: float) -> list[Result]:
        """Return the lines of our work next to that of each other connector.

        The bar is that of Spark's connector on Apache Kafka alone.
        """
        lines: list[Result] = []
        for other in self.others:
            found = Found({ours: work[ours], other.name: work[other.name]})
            bar = at_least if other is self.others[0] else None
            lines.append(found.result(name, "records/s", lambda one: one.rate, "higher", bar))
            cpu = f"{name}: CPU of Spark and the cluster"
            lines.append(found.result(cpu, "s per million", lambda one: one.cpu_s_per_million, "lower"))
        return lines


def spark(clusters: Clusters) -> list[Result]:
    """Measure all reads and writes of Spark. The clusters' topics are filled first."""
    records = clusters.options.pick(3_000_000, 300_000)
    for peer in clusters.peers:
        clusters.options.say(f"filling {peer.name}")
        _fill(peer, records)
    with clusters.options.scratch() as folder, spark_session(folder) as session:
        ours, *others = _connectors(clusters)
        bench = SparkBench(clusters, session, folder, ours, tuple(others), records)
        return [line for part in (scans, parquet, tuples, sinks, sustained, triggers) for line in part(bench)]


def scans(bench: SparkBench) -> list[Result]:
    """Read all records, and add up the lengths of their values."""

    def scan(connector: Connector) -> Work:
        bench.clusters.options.say(f"Spark scans with {connector.name}")
        return bench.measure(connector, bench.records, lambda: seconds_of(lambda: _scan(bench, connector)))

    # The first work of the session, for which the JVM compiles most of its code.
    work = bench.in_turns(bench.of_each_connector(scan), warm_up=2)
    return bench.lines(f"Spark: scan of {bench.text}", work, _OURS, at_least=2.5)


def parquet(bench: SparkBench) -> list[Result]:
    """Read all records, and write all columns to Parquet."""

    def write(connector: Connector) -> Work:
        bench.clusters.options.say(f"Spark writes Parquet with {connector.name}")
        writer = connector.reader(bench.spark).load().write.mode("overwrite")
        path = str(bench.folder / "records.parquet")
        return bench.measure(connector, bench.records, lambda: seconds_of(lambda: writer.parquet(path)))

    work = bench.in_turns(bench.of_each_connector(write))
    return bench.lines(f"Spark: {bench.text} to Parquet", work, _OURS, at_least=2.0)


def tuples(bench: SparkBench) -> list[Result]:
    """Scan with Arrow batches and with tuples, which the Python Data Source API takes as well."""
    with_tuples = Connector(_WITH_TUPLES, TUPLES, bench.ours.options)
    ends = {str(partition): bench.records // _PARTITIONS // _TUPLE_SHARE for partition in range(_PARTITIONS)}

    def few() -> Work:
        bench.clusters.options.say("Spark scans with tuples")
        rows = with_tuples.reader(bench.spark).option("endingOffsets", json.dumps({_TOPIC: ends})).load()
        return bench.measure(with_tuples, sum(ends.values()), lambda: seconds_of(lambda: _total_length(rows)))

    def all_records() -> Work:
        return bench.measure(bench.ours, bench.records, lambda: seconds_of(lambda: _scan(bench, bench.ours)))

    found = Found(bench.in_turns({_OURS: all_records, _WITH_TUPLES: few}))
    return [found.result(f"Spark: scan of {bench.text}", "records/s", lambda one: one.rate, "higher", at_least=5)]


def sinks(bench: SparkBench) -> list[Result]:
    """Write rows that Spark generates to a new topic, with each guarantee."""
    rows = bench.spark.range(0, bench.records, 1, _PARTITIONS).selectExpr(
        f"CAST(lpad(CAST(id AS STRING), {_BYTES}, '0') AS BINARY) AS value"
    )
    numbers = itertools.count()

    def write(connector: Connector, semantics: str | None = None) -> Work:
        bench.clusters.options.say(f"Spark writes with {connector.name} {semantics or ''}")
        options = {} if semantics is None else {"sink.semantics": semantics}
        return _write(bench, rows, connector, {"topic": f"sink-{next(numbers)}", **options})

    variants = {semantics: partial(write, bench.ours, semantics) for semantics in _SEMANTICS}
    work = bench.in_turns(variants | {other.name: partial(write, other) for other in bench.others})
    return [
        line
        for semantics, at_least in _SEMANTICS.items()
        for line in bench.lines(
            f"Spark: write of {bench.text}, {semantics.replace('-', ' ')}", work, semantics, at_least
        )
    ]


def _connectors(clusters: Clusters) -> list[Connector]:
    """Return Tidelog's connector, and Spark's own on each cluster, Apache Kafka's first."""
    found: list[Connector] = []
    for peer in clusters.peers:
        options = {"kafka.bootstrap.servers": peer.bootstrap_servers}
        found.insert(0, Connector(f"Spark's Kafka connector on {peer.name}", "kafka", options))
        if isinstance(peer, TidelogCluster):
            ours = Connector(_OURS, "tidelog", {"bootstrap.servers": peer.native_servers})
    return [ours, *found]


def _fill(peer: Peer, records: int) -> None:
    create_topic(peer, _TOPIC, _PARTITIONS, 1)
    sender = Sender(peer.bootstrap_servers, _TOPIC)
    sender.send(os.urandom(_BYTES), records - records_in(peer.bootstrap_servers, _TOPIC, _PARTITIONS))


def _scan(bench: SparkBench, connector: Connector) -> None:
    total = _total_length(connector.reader(bench.spark).load())
    assert total >= (bench.records - _PARTITIONS) * _BYTES, f"{connector.name} read {total} bytes"


def _total_length(rows: DataFrame) -> int:
    [[total]] = rows.selectExpr("sum(length(value))").collect()
    return int(total)


def _write(bench: SparkBench, rows: DataFrame, connector: Connector, options: Mapping[str, str]) -> Work:
    peer = bench.peer_of(connector)
    create_topic(peer, options["topic"], _PARTITIONS, 1)
    writer = rows.write.format(connector.format).options(**connector.options, **options).mode("append")
    work = bench.measure(connector, bench.records, lambda: seconds_of(writer.save))
    Topics(peer.bootstrap_servers).delete(options["topic"])
    return work


def _serves(peer: Peer, connector: Connector) -> bool:
    servers = {peer.bootstrap_servers, getattr(peer, "native_servers", None)}
    return not servers.isdisjoint(connector.options.values())
