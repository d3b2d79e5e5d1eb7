"""The batch reader: plans the ranges once, and reads each in its own task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog_spark.bounds import LogBounds
from tidelog_spark.fetcher import fetch_range
from tidelog_spark.offsets import OffsetRange, plan_ranges, split_ranges
from tidelog_spark.options import ReadPlan, SourceOptions
from tidelog_spark.schema import read_rows


class RangePartition(InputPartition):
    """A range of offsets in the form that Spark sends to a task."""

    def __init__(self, planned: OffsetRange) -> None:
        super().__init__(planned)


class TidelogReader(DataSourceReader):
    """Reads the committed records between two sets of offsets.

    Spark builds it in a planning process, calls `partitions` there, and pickles it to the workers, which call `read`.
    """

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def partitions(self) -> list[InputPartition]:
        """Return one range per partition with offsets to read, more with ``minPartitions``.

        Raises:
            TidelogError: a topic does not exist, no node answers, or offsets are not in the log.
        """
        plan = self._plan
        bounds = LogBounds(plan.options)
        start, end = bounds.resolve(("startingOffsets", plan.starting), ("endingOffsets", plan.ending))
        ranges = split_ranges(plan_ranges(start, end), plan.options.min_partitions)
        return [RangePartition(planned) for planned in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range."""
        return read_range(self._plan.options, partition, self._schema)


def read_range(options: SourceOptions, partition: InputPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a `RangePartition`; Spark creates one with None when nothing was planned.

    Raises:
        TidelogError: as `tidelog_spark.fetcher.fetch_range`.
        CorruptRecordError: a batch does not match its CRC.
    """
    planned = partition.value
    if planned is None:
        return
    for fetched in fetch_range(options, planned):
        yield from read_rows(fetched.records, replace(planned, start_offset=fetched.offset), schema)
