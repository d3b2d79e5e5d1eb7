"""`SinkRun`: a streaming query that hands its batches to a sink, and commits its offsets to the group of the sink."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sql

from tidelog_connect.connectors.connector import Batch, SinkConnector
from tidelog_connect.connectors.shared_settings import TOPICS, TOPICS_REGEX
from tidelog_connect.errors import ErrorSettings
from tidelog_connect.records import Records
from tidelog_connect.server.checkpoints import Checkpoints
from tidelog_connect.server.dead_letters import DeadLetterTopic, create_dead_letter_topic
from tidelog_connect.server.failed_records import FailedRecords
from tidelog_connect.server.persisting import persisted
from tidelog_connect.server.retries import with_retries
from tidelog_connect.server.settings import WorkerSettings
from tidelog_connect.server.spark_queries import RunContext
from tidelog_connect.server.topic_storage import TopicStorage
from tidelog_foundation.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_EARLIEST = -2
_WATCH_S = 1


class SinkRun:
    """One run of a sink. `run` on its thread; `stop` from any, which waits for the batch that is written.

    ``once`` ends it at the offsets that the topics have at its start.
    """

    def __init__(
        self,
        spark: SparkSession,
        connector: type[SinkConnector],
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
        self._stopping = threading.Event()
        self._ending = threading.Event()
        """Set before `stop` waits for the batch, so that the batch waits for no more attempts."""
        self._writing = threading.Lock()
        self._started = threading.Event()
        self._query: StreamingQuery | None = None
        self._decoded: Records | None = None
        """The records of the stream; None while each batch has schemas of its own."""

    def run(self) -> None:
        """Run the query until it is stopped, or, once, until it has written what the topics have.

        Raises:
            StreamingQueryException: it has failed.
        """
        create_dead_letter_topic(self._errors, self._storage)
        writer = (
            self._rows()
            .writeStream.foreachBatch(self._put)
            .queryName(self._context.name)
            .option("checkpointLocation", self._checkpoint())
        )
        interval = f"{self._settings.worker.sink_trigger_interval_ms} milliseconds"
        query = (writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=interval)).start()
        self._query = query
        self._started.set()
        self._context.started()
        committed: Mapping[tuple[str, int], int] = {}
        while not self._stopping.is_set() and not query.awaitTermination(_WATCH_S):
            committed = self._commit(query, committed)
        if not self._stopping.is_set():
            query.awaitTermination()
            if self._once:
                self._commit(query, committed)
                return
            raise error_for(ErrorCode._STATE, f"the query of {self._context.name} was stopped by someone else")
        query.stop()
        self._commit(query, committed)

    def stop(self) -> None:
        """Wait for the batch that is written, and let `run` return. No later batch is written."""
        self._ending.set()
        with self._writing:
            self._stopping.set()

    def _checkpoint(self) -> str:
        subscription = json.dumps([self._parsed[TOPICS], self._parsed[TOPICS_REGEX]])
        return Checkpoints(self._spark, self._settings).of_subscription(self._context.name, subscription)

    def _put(self, rows: DataFrame, number: int) -> None:
        self._started.wait()
        with self._writing:
            if self._stopping.is_set():
                # The query must not take the batch for written.
                raise error_for(ErrorCode._STATE, "the connector is stopped")
            self._write(rows, number)

    def _write(self, rows: DataFrame, number: int) -> None:
        assert self._query is not None
        counts, began_ns = self._context.counts, time.monotonic_ns()
        with self._records(rows) as records:
            query = str(self._query.id)
            batch = Batch(query, number, records.key_schema, records.value_schema)
            letters = DeadLetterTopic(self._context.name, query, self._errors, self._settings)
            with FailedRecords(self._context.name, self._errors, counts, letters).good(records, number) as good:
                call = partial(self._connector.put, good.select(*self._connector.reads), batch)
                with_retries(self._errors, call, self._ending, counts.retried)
            counts.put.observe(time.monotonic_ns() - began_ns)
            self._context.batches += 1

    @contextmanager
    def _records(self, rows: DataFrame) -> Iterator[Records]:
        """Provide the records of a batch: what the stream has made of them, or, by their own schemas, this method."""
        if self._decoded is not None:
            yield replace(self._decoded, frame=rows)
            return
        with persisted(rows):
            yield _as_sinks_see(self._context.pipeline.of_batch(rows).from_topics(rows))

    def _rows(self) -> DataFrame:
        """Return the stream with the steps of the pipeline that need no batch, and the columns that batches need.

        Spark then analyses the steps once, and not for each batch, and makes no columns that nobody reads.
        """
        pipeline, stream = self._context.pipeline, self._stream()
        if pipeline.needs_batch:
            return stream
        self._decoded = _as_sinks_see(pipeline.from_topics(stream))
        frame = self._decoded.frame
        return frame if self._decoded.can_fail else frame.select(*self._connector.reads)

    def _stream(self) -> DataFrame:
        named, pattern = self._parsed[TOPICS], self._parsed[TOPICS_REGEX]
        # A pattern of Java that Python does not know fails here.
        chosen = {
            topic: count
            for topic, count in self._storage.topics().items()
            if (topic in named if named else re.fullmatch(pattern, topic) and not topic.startswith("__"))
        }
        missing = sorted(set(named) - set(chosen))
        if missing:
            raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topics do not exist: {', '.join(missing)}")
        committed = self._storage.sink_offsets(self._context.name)
        start = {
            topic: {str(index): committed.get((topic, index), _EARLIEST) for index in range(count)}
            for topic, count in chosen.items()
        }
        subscription = {"subscribe": ",".join(named)} if named else {"subscribePattern": pattern}
        most = str(self._settings.worker.sink_max_offsets_per_trigger)
        stream = (
            self._spark.readStream.format("tidelog")
            .options(**self._settings.client, **subscription, includeHeaders="true")
            .option("maxOffsetsPerTrigger", most)
            .options(**self._connector.read_options())
            .option("startingOffsets", json.dumps(start) if start else "earliest")
            .load()
        )
        return stream.coalesce(self._context.tasks)

    def _commit(self, query: StreamingQuery, committed: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        """Commit the end of the last complete batch, if it is new, and report the topics that have records."""
        progress = query.lastProgress
        text = None if progress is None else progress["sources"][0]["endOffset"]
        if not text:
            return committed
        tree = json.loads(text) if isinstance(text, str) else text
        ends = {
            (topic, int(index)): int(offset)
            for topic, parts in tree.items()
            if not topic.startswith("@")
            for index, offset in parts.items()
        }
        changed = {key: offset for key, offset in ends.items() if committed.get(key) != offset}
        if changed:
            self._storage.commit_sink_offsets(self._context.name, changed)
            self._context.used(frozenset(topic for (topic, _), offset in changed.items() if offset > 0))
        return ends


def _as_sinks_see(records: Records) -> Records:
    timestamp = sql.timestamp_millis("timestamp")
    return replace(records, frame=records.frame.withColumn("timestamp", timestamp))
