"""`SourceRun`: polls a source and writes its batches to topics, each in one commit with its offsets.

Batches are numbered writes of one application (docs/decisions/0038). The first write of a run has no records of the
source: once it is committed, no earlier run can commit a batch, and those that did are complete. So the offsets that
are read after it are the last ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from tidelog_connect.connectors.connector import SourceBatch, SourceConnector
from tidelog_connect.connectors.offsets import partition_key
from tidelog_connect.connectors.shared_settings import PARTITIONS, REPLICATION_FACTOR
from tidelog_connect.errors import ErrorSettings
from tidelog_connect.pipeline import source_records
from tidelog_connect.server.failed_records import FailedRecords
from tidelog_connect.server.java_references import release_java_references
from tidelog_connect.server.record_count import RecordCount
from tidelog_connect.server.retries import with_retries
from tidelog_connect.server.settings import WorkerSettings
from tidelog_connect.server.spark_queries import RunContext
from tidelog_connect.server.topic_storage import TopicStorage, fence_record, offset_record
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = "topic string, key binary, value binary"
_MAX_TOPICS = 1000


class SourceRun:
    """One run of a source. `run` on its thread; `stop` from any. ``once`` ends it when there is nothing new."""

    def __init__(
        self,
        spark: SparkSession,
        connector: type[SourceConnector],
        parsed: dict[str, Any],
        context: RunContext,
        settings: WorkerSettings,
        storage: TopicStorage,
        *,
        once: bool = False,
    ) -> None:
        self._spark, self._context, self._once = spark, context, once
        self._connector = connector(parsed)
        self._parsed, self._settings, self._storage = parsed, settings, storage
        self._errors = ErrorSettings.of(context.config)
        self._failed = FailedRecords(context.name, self._errors, context.counts)
        self._stopping = threading.Event()
        self._known_topics: set[str] = set()

    def run(self) -> None:
        """Write batches until the run is stopped, or, once, until the source has nothing new."""
        position = self._fence()
        self._context.started()
        while not self._stopping.is_set():
            batch = self._poll(position)
            if batch is None and self._once:
                return
            if batch is None:
                self._stopping.wait(self._settings.worker.source_poll_interval_ms / 1000)
                continue
            topics = self._write_batch(batch)
            release_java_references()
            changed = {partition_key(each.partition): each.offset for each in batch.offsets}
            position = {key: offset for key, offset in {**position, **changed}.items() if offset is not None}
            self._context.used(topics)
            self._context.batches += 1

    def _poll(self, position: Mapping[str, Mapping[str, Any]]) -> SourceBatch | None:
        counts, began_ns = self._context.counts, time.monotonic_ns()
        poll = partial(self._connector.poll, self._spark, dict(position))
        try:
            return with_retries(self._errors, poll, self._stopping, counts.retried)
        finally:
            counts.poll.observe(time.monotonic_ns() - began_ns)

    def _fence(self) -> dict[str, Mapping[str, Any]]:
        """Fence earlier runs, and return the position behind their last batch.

        Raises:
            TidelogError: the journal has dropped the fence, and would drop all batches.
        """
        number = self._context.next_number()
        topic = self._settings.worker.offset_storage_topic
        self._write(self._rows([(topic, *fence_record(self._name, number))]), number)
        position = dict(self._storage.source_offsets(self._name))
        fence = self._storage.last_fence(self._name)
        if fence != number:
            raise error_for(
                ErrorCode._STATE,
                f"the batches of {self._name} begin with number {number}, which is not above the last committed one: "
                f"another worker leads (its number is {fence}), or the topic {topic} or "
                f"{self._settings.worker.config_storage_topic} is not the one that group "
                f"{self._settings.worker.group_id} had before; use another group.id or another name of the connector",
            )
        return position

    def stop(self) -> None:
        """Let `run` return after its batch."""
        self._stopping.set()

    @property
    def _name(self) -> str:
        return self._context.name

    def _write_batch(self, batch: SourceBatch) -> frozenset[str]:
        """Write the rows of a batch with its offsets, and return their topics."""
        pipeline, began_ns = self._context.pipeline, time.monotonic_ns()
        found = pipeline.to_topics(source_records(batch.rows, batch.key_schema, batch.value_schema))
        names = ["topic", "key", "value"]
        names += [name for name in ("partition", "timestamp") if name in batch.rows.columns]
        if "headers" in batch.rows.columns or pipeline.transforms.steps:
            names.append("headers")
        number = self._context.next_number()
        with self._failed.good(found, number) as good:
            topics = self._topics(good) if found.is_routed else batch.topics
            self._create_topics(topics)
            rows = good.withColumn("timestamp", sql.timestamp_millis("timestamp")).select(*names)
            count = RecordCount()
            self._write(self._with_offsets(count.of(rows), batch), number)
        self._context.counts.written_records += count.wait()
        self._context.counts.write.observe(time.monotonic_ns() - began_ns)
        return topics

    def _topics(self, rows: DataFrame) -> frozenset[str]:
        """Return the topics to which transforms have routed rows.

        Raises:
            TidelogError: there are too many.
        """
        found = rows.select("topic").distinct().limit(_MAX_TOPICS + 1).collect()
        if len(found) > _MAX_TOPICS:
            raise error_for(
                ErrorCode._STATE, f"transforms route the records of a batch to more than {_MAX_TOPICS} topics"
            )
        return frozenset(row["topic"] for row in found)

    def _with_offsets(self, rows: DataFrame, batch: SourceBatch) -> DataFrame:
        topic = self._settings.worker.offset_storage_topic
        offsets = [
            (topic, *offset_record(self._name, partition_key(each.partition), each.offset)) for each in batch.offsets
        ]
        return rows.coalesce(self._context.tasks).unionByName(self._rows(offsets), allowMissingColumns=True)

    def _rows(self, rows: Sequence[tuple[str, bytes, bytes | None]]) -> DataFrame:
        return self._spark.createDataFrame([*rows], _COLUMNS).coalesce(1)

    def _write(self, rows: DataFrame, number: int) -> None:
        options = {
            "txnAppId": f"connect-{self._settings.worker.group_id}-{self._name}",
            "txnVersion": str(number),
        }
        rows.write.format("tidelog").options(**self._settings.client, **options).mode("append").save()

    def _create_topics(self, topics: frozenset[str]) -> None:
        for topic in sorted(topics - self._known_topics):
            counts: Mapping[str, int | None] = {key: self._parsed[key] for key in (PARTITIONS, REPLICATION_FACTOR)}
            if any(counts.values()) and not self._storage.partitions(topic):
                partitions, replicas = (counts[key] or -1 for key in (PARTITIONS, REPLICATION_FACTOR))
                self._storage.create_topic(topic, partitions, replicas, {})
            self._known_topics.add(topic)
