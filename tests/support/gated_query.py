"""A copying query that stops at a named step of a micro-batch until its test lets it go on, and its program.

The folder of the environment variable GATE_FOLDER has the files of `Gate`. Only the first process that reaches the step
stops. It goes on in the end, even if its driver was killed meanwhile.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType
from query_steps import COMMIT_BEGINS, COMMIT_ENDS, END_PLANNED, RANGES_PLANNED, READING, SteppedExecution

from tidelog import Producer
from tidelog_chaos.workload.spark.copy_program import main, read_settings
from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.sink.execution import Execution
from tidelog_spark.sink.options import sink_plan
from tidelog_spark.sink.writer import TidelogStreamWriter
from tidelog_spark.source.options import parse_options, stream_plan
from tidelog_spark.source.reader import TidelogStreamReader
from tidelog_spark.source.stream_offsets import OffsetTree

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "GATE_FOLDER"
_WAIT_S = 900.0


class Gate:
    """Both sides of a gate: files in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def close(self, step: str) -> None:
        """Let the next process that reaches the step stop there. Used by the test, as are the next two."""
        for path in self._folder.iterdir():
            path.unlink()
        new = self._folder / "new"
        new.write_text(step)
        new.rename(self._folder / "order")

    def reached(self) -> int | None:
        """Return the id of the process that has stopped, or None."""
        found = next(self._folder.glob("reached-*"), None)
        return None if found is None else int(found.name.partition("-")[2])

    def open(self) -> None:
        """Let the process go on."""
        (self._folder / "open").touch()

    def reach(self, step: str) -> None:
        """Stop at the step if the test has closed it. Used by the query."""
        order = self._folder / "order"
        try:
            if order.read_text() != step:
                return
            order.rename(self._folder / f"reached-{os.getpid()}")
        except FileNotFoundError:
            return
        deadline = time.monotonic() + _WAIT_S
        while not (self._folder / "open").exists() and time.monotonic() < deadline:
            time.sleep(0.02)


def reach(step: str) -> None:
    """Stop at the step if the test of this process has closed it."""
    Gate(Path(os.environ[FOLDER])).reach(step)


class GatedExecution(SteppedExecution):
    """Stops after a command."""

    def reach(self, step: str) -> None:
        reach(step)


class GatedWriter(TidelogStreamWriter):
    """Stops in tasks and in the commit."""

    def _execution(self, sink: str, write: Callable[[Producer], None] | None = None) -> Execution:
        return GatedExecution(self._plan, sink, is_single=self._is_single, write=write)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reach(COMMIT_BEGINS)
        super().commit(messages, batchId)
        reach(COMMIT_ENDS)


class GatedReader(TidelogStreamReader):
    """Stops while a micro-batch with records is planned, and in tasks."""

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:
        end = super().latestOffset(start, limit)
        if end != start:
            reach(END_PLANNED)
        return end

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        ranges = super().partitions(start, end)
        if ranges:
            reach(RANGES_PLANNED)
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            reach(READING)
            yield batch


class GatedDataSource(TidelogDataSource):
    """``format("gated")``."""

    @classmethod
    def name(cls) -> str:
        return "gated"

    def streamReader(self, schema: StructType) -> GatedReader:
        return GatedReader(stream_plan(parse_options(self._raw)), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> GatedWriter:
        return GatedWriter(sink_plan(self._raw), schema, overwrite)


if __name__ == "__main__":
    # Under its own name, so that all processes of Spark import the module.
    import gated_query

    sys.exit(main(read_settings(sys.stdin), gated_query.GatedDataSource, gated_query.GatedDataSource))
