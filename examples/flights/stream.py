"""The stream of the demo: it copies the topic to Parquet while flights arrive, and reports each micro-batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming import StreamingQuery

from tidelog.spark import Json

_FLIGHT = Json("row INT, carrier STRING, month INT, dep_delay INT")
_TRIGGER = "2 seconds"
_MAX_ROWS = 60_000
"""The most rows in a micro-batch: a stream that has fallen behind catches up in steps that can be seen."""

_POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One micro-batch. ``read`` includes all batches before; ``behind`` counts acknowledged rows that are not read."""

    number: int
    rows: int
    seconds: float
    read: int
    behind: int

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        return (
            f"micro-batch {self.number:>3}: {self.rows:>7,} rows in {self.seconds:>5.2f} s"
            f" ({rate:>7,.0f} rows/s), {self.behind:>7,} behind"
        )


@dataclass(slots=True)
class Tally:
    """The micro-batches with rows, in order. Spark reports a batch more than once, and empty ones."""

    batches: list[MicroBatch] = field(default_factory=list)

    def add(self, progress: Mapping[str, Any], acknowledged: int) -> MicroBatch | None:
        """Add the progress of a query, and return its micro-batch if it is a new one with rows."""
        last = self.batches[-1] if self.batches else MicroBatch(-1, 0, 0.0, 0, 0)
        if progress["batchId"] <= last.number or progress["numInputRows"] == 0:
            return None
        read = last.read + progress["numInputRows"]
        seconds = progress["durationMs"]["triggerExecution"] / 1000
        batch = MicroBatch(progress["batchId"], progress["numInputRows"], seconds, read, max(0, acknowledged - read))
        self.batches.append(batch)
        return batch


class FlightStream:
    """A running query and the thread that reports its micro-batches."""

    def __init__(
        self, spark: SparkSession, servers: str, topic: str, work: Path, acknowledged: Callable[[], int]
    ) -> None:
        self.parquet = work / "parquet"
        self.tally = Tally()
        self._acknowledged = acknowledged
        self._records = _flights(spark, servers, topic)
        self._checkpoint = work / "checkpoint"
        self._stopping = threading.Event()
        self._query: StreamingQuery | None = None
        self._thread: threading.Thread | None = None

    def start(self, show: Callable[[str], None]) -> None:
        """Start the query. Each micro-batch with rows is shown as one line."""
        writer = self._records.writeStream.format("parquet").option("path", str(self.parquet))
        writer = writer.option("checkpointLocation", str(self._checkpoint)).trigger(processingTime=_TRIGGER)
        self._query = writer.start()
        self._thread = threading.Thread(
            target=self._report, args=(self._query, show), name="stream-report", daemon=True
        )
        self._thread.start()

    def finish(self) -> None:
        """Read what the topic has, and stop. Raises the error of a query that has failed."""
        assert self._query is not None
        assert self._thread is not None
        try:
            self._query.processAllAvailable()
        finally:
            self._stopping.set()
            self._thread.join()
            self._query.stop()

    def _report(self, query: StreamingQuery, show: Callable[[str], None]) -> None:
        is_last = False
        while not is_last:
            is_last = self._stopping.wait(_POLL_INTERVAL_S)
            for progress in query.recentProgress:
                batch = self.tally.add(progress, self._acknowledged())
                if batch is not None:
                    show(f"  {batch}")


def _flights(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    options = {"bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    options["maxOffsetsPerTrigger"] = str(_MAX_ROWS)
    records = spark.readStream.format("tidelog").options(**options).load()
    flight = _FLIGHT.decode(col("value")).alias("flight")
    return records.select("key", "value", "partition", "offset", "timestamp", flight).select(
        "key", "value", "partition", "offset", "timestamp", "flight.*"
    )
