"""Lag and throughput of streaming queries, from the progress that Spark reports after each micro-batch."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from tidelog_spark.source.offsets import Offsets

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The records that a query has not read yet, and its throughput, after one micro-batch.

    ``partitions`` has the number of offsets behind the end of each (topic, partition) when the micro-batch was planned.
    There may be fewer records: transactions and compaction leave gaps. ``lost`` is the number of offsets that the
    planner has found lost since the query's start; with those that tasks have lost, there are at most ``lost_at_most``.
    ``rows`` and the rates are those of the micro-batch, of all of the query's sources.
    """

    query: str
    batch_id: int
    partitions: Mapping[tuple[str, int], int]
    lost: int
    rows: int
    input_rows_per_second: float
    processed_rows_per_second: float
    lost_at_most: int = 0

    @property
    def total(self) -> int:
        """The number of offsets behind, over all partitions."""
        return sum(self.partitions.values())


def lag(progress: StreamingQueryProgress | Mapping[str, Any]) -> QueryLag:
    """Return the lag and the throughput of a query, given an element of ``recentProgress``, or ``lastProgress``.

    Sources whose offsets are not per topic and partition, such as ``rate``, have no lag.
    """
    tree = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    behind: Offsets = {}
    for source in tree["sources"]:
        for key, offsets in _behind(_tree(source.get("endOffset")), _tree(source.get("latestOffset"))).items():
            behind[key] = behind.get(key, 0) + offsets
    return QueryLag(
        query=tree.get("name") or tree["id"],
        batch_id=tree["batchId"],
        partitions=behind,
        lost=sum(_tree(source.get("latestOffset")).get("@lost", 0) for source in tree["sources"]),
        lost_at_most=sum(_tree(source.get("latestOffset")).get("@lostAtMost", 0) for source in tree["sources"]),
        rows=sum(source["numInputRows"] for source in tree["sources"]),
        # Spark leaves out rates that it does not know, and Spark Connect all rates of the whole query.
        input_rows_per_second=sum(source.get("inputRowsPerSecond", 0.0) for source in tree["sources"]),
        processed_rows_per_second=sum(source.get("processedRowsPerSecond", 0.0) for source in tree["sources"]),
    )


class LagListener(StreamingQueryListener):
    """Logs the lag and the throughput of each micro-batch, and sets gauges in a registry of prometheus_client if given.

    ::

        spark.streams.addListener(tidelog.spark.LagListener(prometheus_client.REGISTRY))

    The gauges are ``tidelog_spark_lag_records`` by query, topic and partition, and
    ``tidelog_spark_input_rows_per_second`` and ``tidelog_spark_processed_rows_per_second`` by query. They end with the
    query. Spark calls the methods on a thread of its own.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._gauges = None if registry is None else _Gauges(registry)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: a query has no lag before its first micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Log and export a micro-batch."""
        seen = lag(event.progress)
        log.info(
            "Query %s, micro-batch %d: %d rows, %.0f rows/s, %d records behind, %s lost",
            seen.query,
            seen.batch_id,
            seen.rows,
            seen.processed_rows_per_second,
            seen.total,
            seen.lost if seen.lost_at_most <= seen.lost else f"{seen.lost} to {seen.lost_at_most}",
        )
        if self._gauges is not None:
            self._gauges.show(str(event.progress.runId), seen)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Remove the query's gauges."""
        if self._gauges is not None:
            self._gauges.remove(str(event.runId))


class _Gauges:
    """The gauges of running queries, each a run of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Gauge

        self._lag = Gauge(
            "tidelog_spark_lag_records",
            "Offsets between the last micro-batch and the end of the partition.",
            ("query", "topic", "partition"),
            registry=registry,
        )
        self._input = Gauge(
            "tidelog_spark_input_rows_per_second", "Rows that arrive in a second.", ("query",), registry=registry
        )
        self._processed = Gauge(
            "tidelog_spark_processed_rows_per_second",
            "Rows of the last micro-batch divided by its time.",
            ("query",),
            registry=registry,
        )
        self._lock = threading.Lock()
        self._last: dict[str, QueryLag] = {}

    def show(self, run: str, seen: QueryLag) -> None:
        with self._lock:
            for topic, partition in self._keys(run) - seen.partitions.keys():
                self._lag.remove(seen.query, topic, str(partition))
            for (topic, partition), records in seen.partitions.items():
                self._lag.labels(seen.query, topic, str(partition)).set(records)
            self._input.labels(seen.query).set(seen.input_rows_per_second)
            self._processed.labels(seen.query).set(seen.processed_rows_per_second)
            self._last[run] = seen

    def remove(self, run: str) -> None:
        with self._lock:
            keys, seen = self._keys(run), self._last.pop(run, None)
            if seen is None:
                return
            for topic, partition in keys:
                self._lag.remove(seen.query, topic, str(partition))
            self._input.remove(seen.query)
            self._processed.remove(seen.query)

    def _keys(self, run: str) -> set[tuple[str, int]]:
        return set(self._last[run].partitions) if run in self._last else set()


def _behind(end: Mapping[str, Any], latest: Mapping[str, Any]) -> Offsets:
    return {
        (topic, int(index)): max(0, offset - end.get(topic, {}).get(index, 0))
        for topic, parts in latest.items()
        if _is_topic(topic, parts)
        for index, offset in parts.items()
    }


def _is_topic(name: str, parts: object) -> bool:
    """Return whether an entry of offsets is a topic; other entries have names that no topic can have."""
    return not name.startswith("@") and isinstance(parts, dict)


def _tree(offset: object) -> Mapping[str, Any]:
    """Return an offset as an object, which Spark may report as text; empty for offsets of another form."""
    value = json.loads(offset) if isinstance(offset, str) else offset
    return value if isinstance(value, dict) else {}
