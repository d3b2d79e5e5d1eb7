"""A query from topic to topic on a node in memory copies each record once after a crash at each step of a micro-batch.

`Query` does what Spark does around the real source and the real sink. ``make chaos`` kills Spark itself at these steps.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from query_steps import COMMIT_BEGINS, COMMIT_ENDS, END_PLANNED, RANGES_PLANNED, READING, STEPS, SteppedExecution
from sink_runner import PARTITIONS, SINK, Crash, open_ids, plan_of

from tidelog import Producer
from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.sink.execution import task_id
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.protocol import Attempt, commit_batch, write_task
from tidelog_spark.sink.rows import produce_rows
from tidelog_spark.source.options import parse_options, stream_plan
from tidelog_spark.source.reader import TidelogStreamReader
from tidelog_spark.source.schema import spark_schema

ROWS = 3


class Query:
    """The checkpoint of a query that copies the topic in to t; each `run` is a start."""

    def __init__(self, fake: FakeCluster) -> None:
        self._fake = fake
        self._offsets: list[str] = []
        self._commits = 0
        self._starts = 0
        self.crash_at: str | None = None

    def run(self, crash_at: str | None = None) -> None:
        """Run micro-batches until nothing is left. Raise Crash at a step."""
        self._starts += 1
        self.crash_at = crash_at
        options = {"bootstrap.servers": self._fake.bootstrap_servers, "subscribe": "in", "startingOffsets": "earliest"}
        reader = TidelogStreamReader(stream_plan(parse_options(options)), spark_schema(False))
        while self._run_batch(reader):
            pass

    def reach(self, step: str) -> None:
        """Crash if this is the step."""
        if step == self.crash_at:
            raise Crash(step)

    def _run_batch(self, reader: TidelogStreamReader) -> bool:
        start = json.loads(self._offsets[self._commits - 1]) if self._commits else reader.initialOffset()
        if len(self._offsets) == self._commits:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return False
            self.reach(END_PLANNED)
            self._offsets.append(json.dumps(end))
        parts = reader.partitions(start, json.loads(self._offsets[-1]))
        self.reach(RANGES_PLANNED)
        attempt = Attempt(SINK, f"run-{self._starts}", self._commits)
        written = [self._copy(attempt, reader, part) for part in parts]
        self.reach(COMMIT_BEGINS)
        prepared = tuple(each for each in written if each is not None)
        Crashing(plan_of(self._fake), SINK, is_single=False).of(self).run(commit_batch(attempt, prepared))
        self.reach(COMMIT_ENDS)
        self._commits += 1
        return True

    def _copy(self, attempt: Attempt, reader: TidelogStreamReader, part: InputPartition) -> Prepared | None:
        rows = pa.Table.from_batches(reader.read(part)).select(["key", "value", "partition"])
        self.reach(READING)

        def write(producer: Producer) -> None:
            produce_rows(producer, "t", rows)

        execution = Crashing(plan_of(self._fake), SINK, is_single=False, write=write).of(self)
        return execution.run(write_task(attempt, task_id(SINK, part.value.partition, 0)))


class Crashing(SteppedExecution):
    """Crashes where its query does, and leaves everything as a killed process does."""

    def of(self, query: Query) -> Crashing:
        self._query = query
        return self

    def reach(self, step: str) -> None:
        self._query.reach(step)

    def _close(self) -> None:
        if self._query.crash_at is None:
            super()._close()


def append(fake: FakeCluster, first: int) -> None:
    for partition in range(PARTITIONS):
        builder = RecordBatchBuilder()
        for number in range(first, first + ROWS):
            builder.append(None, str(number).encode(), (), 0)
        fake.append("in", partition, builder.build())


def test_query_copies_each_record_once_and_in_order_after_a_crash_at_each_step() -> None:
    with FakeCluster() as fake:
        for topic in ("in", "t"):
            fake.create_topic(topic, partitions=PARTITIONS)
        query = Query(fake)
        for number, step in enumerate(STEPS):
            append(fake, number * ROWS)
            with pytest.raises(Crash, match=step):
                query.run(step)
            query.run()
            assert open_ids(fake) == [], step
        for partition in range(PARTITIONS):
            copied = [int(record.value or b"-1") for record in fake.records("t", partition, read_committed=True)]
            assert copied == list(range(len(STEPS) * ROWS))
