"""Spark's streams: the cost of a micro-batch, and the rate of a stream that catches up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from benchmarks.peers.comparison import Found
from benchmarks.result import Bar, Result
from benchmarks.rounds import in_turns, quantile

if TYPE_CHECKING:
    from benchmarks.peers.spark import Connector, SparkBench, Work

_BATCHES = 6
_ROWS_PER_TRIGGER = 100
_PARTITIONS = 2
_RATE = "Spark's rate source"
_UNCOUNTED = 3
"""The first triggers of a query start its processes."""
_TIMEOUT_S = 120.0
_LOOK_S = 0.1

_numbers = itertools.count()


def sustained(bench: SparkBench) -> list[Result]:
    """Read all records in a few micro-batches. The first one, in which Spark starts the source, does not count."""

    def catch_up(connector: Connector) -> float:
        rows = _stream(bench, connector, bench.records // _BATCHES)
        query = _writer(bench, rows).trigger(availableNow=True).start()
        query.awaitTermination()
        first, *batches = _batches(query)
        counted = sum(batch["numInputRows"] for batch in batches)
        assert first["numInputRows"] + counted == bench.records, f"{connector.name} read {counted} and the first batch"
        # As if all records had come at the rate of those that count.
        return float(sum(map(_duration_ms, batches)) / 1e3 * bench.records / counted)

    def measured(connector: Connector) -> Work:
        bench.clusters.options.say(f"a stream reads with {connector.name}")
        return bench.measure(connector, bench.records, lambda: catch_up(connector))

    work = bench.in_turns(bench.of_each_connector(measured))
    return bench.lines(f"Spark: stream of {bench.text}", work, bench.ours.name, at_least=1.5)


def triggers(bench: SparkBench) -> list[Result]:
    """Run micro-batches of a hundred rows, one per second, and measure each one from its planning to its commit."""
    count = bench.clusters.options.pick(10, 8)

    def timed(name: str, rows: DataFrame) -> list[float]:
        bench.clusters.options.say(f"micro-batches of {name}")
        query = _writer(bench, rows).trigger(processingTime="1 second").start()
        try:
            _wait(query, count + _UNCOUNTED)
            return [_duration_ms(batch) for batch in _batches(query)[_UNCOUNTED:]]
        finally:
            query.stop()

    rate = bench.spark.readStream.format("rate").options(rowsPerSecond=_ROWS_PER_TRIGGER, numPartitions=_PARTITIONS)
    sources = {each.name: _stream(bench, each, _ROWS_PER_TRIGGER) for each in (bench.ours, bench.others[0])}
    variants = {name: partial(timed, name, rows) for name, rows in {**sources, _RATE: rate.load()}.items()}
    taken = in_turns(variants, bench.clusters.options.pick(3, 1), warm_up=bench.clusters.options.pick(1, 0))
    return _trigger_lines(bench, taken)


def _trigger_lines(bench: SparkBench, taken: dict[str, list[list[float]]]) -> list[Result]:
    name = f"Spark: a micro-batch of {_ROWS_PER_TRIGGER} records, p50"
    ours = bench.ours.name
    medians = {source: [quantile(one, 0.5) for one in rounds] for source, rounds in taken.items()}
    lines = [
        Found({ours: medians[ours], other: medians[other]}).result(name, "ms", lambda ms: ms, "lower")
        for other in taken
        if other != ours
    ]
    differences = [our - their for our, their in zip(medians[ours], medians[_RATE], strict=True)]
    above = Result(f"{name}: above {_RATE}'s", quantile(differences, 0.5), "ms", bar=Bar.on_value(at_most=50))
    return [*lines, above]


def _stream(bench: SparkBench, connector: Connector, max_offsets: int) -> DataFrame:
    reader = bench.spark.readStream.format(connector.format).options(**connector.options)
    return reader.options(subscribe="values", startingOffsets="earliest", maxOffsetsPerTrigger=max_offsets).load()


def _writer(bench: SparkBench, rows: DataFrame) -> DataStreamWriter:
    checkpoint = bench.folder / f"checkpoint-{next(_numbers)}"
    return rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))


def _batches(query: StreamingQuery) -> Sequence[Any]:
    """Return the progress of all micro-batches that had rows."""
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def _duration_ms(batch: Any) -> float:
    return float(batch["durationMs"]["triggerExecution"])


def _wait(query: StreamingQuery, batches: int) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while len(_batches(query)) < batches:
        if query.exception() is not None or time.monotonic() > deadline_s:
            raise RuntimeError(f"{len(_batches(query))} of {batches} micro-batches: {query.exception()}")
        time.sleep(_LOOK_S)
