"""A query from topic to topic without Spark: the real source and the real sink, called as Spark calls them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from query_steps import COMMIT_BEGINS, COMMIT_ENDS, END_PLANNED, RANGES_PLANNED, READING, SteppedExecution
from sink_runner import SINK, Crash, plan_of

from tidelog import Producer
from tidelog.testing import FakeCluster, LocalCluster
from tidelog_spark.sink.execution import task_id
from tidelog_spark.sink.journal import Prepared
from tidelog_spark.sink.protocol import Attempt, commit_batch, write_task
from tidelog_spark.sink.rows import produce_rows
from tidelog_spark.source.options import parse_options, stream_plan
from tidelog_spark.source.reader import TidelogStreamReader
from tidelog_spark.source.schema import spark_schema

OnStep = Callable[[str], None]


class SteppedQuery:
    """The checkpoint of a query that copies ``source`` to ``target``; each `run` is a start."""

    def __init__(self, cluster: FakeCluster | LocalCluster, source: str, target: str, sink: str = SINK) -> None:
        self._sink = sink
        self._servers = cluster.client_settings()
        self._source, self._target = source, target
        self._plan = plan_of(cluster, topic=target)
        self._offsets: list[str] = []
        self._commits = 0
        self._starts = 0
        self._on_step: OnStep = lambda step: None

    def run(self, on_step: OnStep = lambda step: None) -> None:
        """Run micro-batches until nothing is left. ``on_step`` is called at each step, and crashes by raising Crash."""
        self._starts += 1
        self._on_step = on_step
        options = {**self._servers, "subscribe": self._source, "startingOffsets": "earliest"}
        reader = TidelogStreamReader(stream_plan(parse_options(options)), spark_schema(False))
        while self._run_batch(reader):
            pass

    def _run_batch(self, reader: TidelogStreamReader) -> bool:
        start = json.loads(self._offsets[self._commits - 1]) if self._commits else reader.initialOffset()
        if len(self._offsets) == self._commits:
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return False
            self._on_step(END_PLANNED)
            self._offsets.append(json.dumps(end))
        parts = reader.partitions(start, json.loads(self._offsets[-1]))
        self._on_step(RANGES_PLANNED)
        attempt = Attempt(self._sink, f"run-{self._starts}", self._commits)
        written = [self._copy(attempt, reader, part) for part in parts]
        self._on_step(COMMIT_BEGINS)
        prepared = tuple(each for each in written if each is not None)
        self._execution(None).run(commit_batch(attempt, prepared))
        self._on_step(COMMIT_ENDS)
        self._commits += 1
        return True

    def _copy(self, attempt: Attempt, reader: TidelogStreamReader, part: InputPartition) -> Prepared | None:
        rows = pa.Table.from_batches(reader.read(part)).select(["key", "value", "partition"])
        self._on_step(READING)
        execution = self._execution(lambda producer: produce_rows(producer, self._target, rows))
        return execution.run(write_task(attempt, task_id(self._sink, part.value.partition, 0)))

    def _execution(self, write: Callable[[Producer], None] | None) -> _Execution:
        execution = _Execution(self._plan, self._sink, is_single=False, write=write)
        execution.on_step = self._on_step
        return execution


class _Execution(SteppedExecution):
    """Leaves everything as a killed process does when it crashes."""

    on_step: OnStep
    _has_crashed = False

    def reach(self, step: str) -> None:
        try:
            self.on_step(step)
        except Crash:
            self._has_crashed = True
            raise

    def _close(self) -> None:
        if not self._has_crashed:
            super()._close()
