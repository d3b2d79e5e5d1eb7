"""Data sources with bugs that the workload ``spark`` must find, and the program that copies with one of them.

``FAULTY_COPY`` is the name of the class, ``FAULTY_MARK`` a file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql.datasource import DataSource, InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog_chaos.workload.spark.copy_program import main, read_settings
from tidelog_spark.data_source import TidelogDataSource
from tidelog_spark.sink.options import sink_plan
from tidelog_spark.sink.writer import TidelogStreamWriter
from tidelog_spark.source.options import parse_options, stream_plan
from tidelog_spark.source.reader import TidelogStreamReader
from tidelog_spark.source.stream_offsets import OffsetTree


class SkippingReader(TidelogStreamReader):
    """Leaves out the first range of each batch with several ranges."""

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        ranges = super().partitions(start, end)
        return ranges[1:] if len(ranges) > 1 else ranges


class SkippingSource(TidelogDataSource):
    """A source that loses records."""

    @classmethod
    def name(cls) -> str:
        return "skipping"

    def streamReader(self, schema: StructType) -> SkippingReader:
        return SkippingReader(stream_plan(parse_options(self._raw)), schema)


class ForgetfulWriter(TidelogStreamWriter):
    """Its rows are visible at once, and the first batch with rows fails afterwards, so that Spark repeats it."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        mark = Path(os.environ["FAULTY_MARK"])
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the commit is forgotten")


class ForgetfulSink(TidelogDataSource):
    """A sink that writes at least once."""

    @classmethod
    def name(cls) -> str:
        return "forgetful"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ForgetfulWriter:
        return ForgetfulWriter(sink_plan({**self._raw, "sink.semantics": "at-least-once"}), schema, overwrite)


_FAULTY: dict[str, tuple[type[DataSource], type[DataSource]]] = {
    "SkippingSource": (SkippingSource, TidelogDataSource),
    "ForgetfulSink": (TidelogDataSource, ForgetfulSink),
}

if __name__ == "__main__":
    sys.exit(main(read_settings(sys.stdin), *_FAULTY[os.environ["FAULTY_COPY"]]))
