"""The readers: the batch reader plans ranges once, the micro-batch reader for each batch; a task reads each range.

Rules of micro-batches:

- An uncommitted batch is replayed with the same end, and with the same start except for batch 0, whose start Spark
  requests again. With ``startingOffsets=latest``, or a timestamp that may stand for it, that start may have moved, so
  batch 0 is empty: its end, which Spark has logged, anchors the stream. Batch 1 reads the records appended since then.
  Trigger.AvailableNow would end after an empty batch, so a timestamp is not anchored there.
- A batch never ends above the end of a log, nor, under Trigger.AvailableNow, above the end at the query's start.
- The same offsets give the same JSON text: Spark takes a different text for new data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_spark.bounds import LogBounds
from tidelog_spark.fetcher import fetch_range
from tidelog_spark.offsets import (
    OffsetRange,
    Offsets,
    advance_offsets,
    limit_offsets,
    offsets_from_json,
    offsets_to_json,
    plan_ranges,
    split_ranges,
)
from tidelog_spark.options import ReadPlan
from tidelog_spark.schema import read_rows


class RangePartition(InputPartition):
    """A range of offsets in the form that Spark sends to a task."""

    def __init__(self, planned: OffsetRange) -> None:
        super().__init__(planned)


class _RangeReader:
    """The part common to both readers, which every task calls."""

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def _split(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        options = self._plan.options
        ranges = split_ranges(plan_ranges(start, end), options.min_partitions, options.max_records_per_partition)
        return [RangePartition(planned) for planned in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a `RangePartition`; Spark creates one with None when nothing was planned.

        Raises:
            TidelogError: as `tidelog_spark.fetcher.fetch_range`.
            CorruptRecordError: a batch does not match its CRC.
        """
        planned = partition.value
        if planned is None:
            return
        for fetched in fetch_range(self._plan.options, planned):
            yield from read_rows(fetched.records, replace(planned, start_offset=fetched.offset), self._schema)


class TidelogReader(_RangeReader, DataSourceReader):
    """Reads the committed records between two sets of offsets.

    Spark builds it in a planning process, calls `partitions` there, and pickles it to the workers, which call `read`.
    """

    def partitions(self) -> list[InputPartition]:
        """Return one range per partition with offsets to read, more with ``minPartitions``.

        Raises:
            TidelogError: a topic does not exist, no node answers, or offsets are not in the log.
        """
        plan = self._plan
        bounds = LogBounds(plan.options)
        start, end = bounds.resolve(plan.starting, plan.ending)
        return self._split(start, end)


OffsetTree = dict[str, dict[str, int]]


class TidelogStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of micro-batches.

    One instance plans a whole query in its own process; its pickled copies only `read`.
    """

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        super().__init__(plan, schema)
        self._initial: OffsetTree | None = None
        self._must_anchor = False
        self._target: Offsets | None = None
        self._pacing = plan.options.pacing
        self._latest: Offsets | None = None

    def initialOffset(self) -> OffsetTree:  # noqa: N802
        """Return the start of a new query; the same at each call of one instance.

        Raises:
            TidelogError: a topic does not exist, no node answers, or startingOffsets are not in the log.
        """
        if self._initial is None:
            [start] = LogBounds(self._plan.options).resolve(self._plan.starting)
            self._initial = offsets_to_json(start)
            self._must_anchor = self._plan.starting.may_move
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return ``maxOffsetsPerTrigger`` as Spark's own limit."""
        limit = self._plan.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the high watermarks: this query reads up to them and ends."""
        self._target = LogBounds(self._plan.options).latest(tolerate_missing=not self._plan.options.fail_on_data_loss)

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:  # noqa: N802
        """Return the end of the next micro-batch, or ``start`` if there is nothing new.

        Raises:
            TidelogError: no node answers, or offsets at which the stream stands are gone (see failOnDataLoss).
        """
        if self._must_anchor and (self._target is None or not self._plan.starting.is_timestamp):
            self._must_anchor = False
            # After a crash in batch 0 the offsets that Spark logged then anchor the stream already.
            if start == self._initial:
                return start
        begin = offsets_from_json(start)
        fail_on_data_loss = self._plan.options.fail_on_data_loss
        self._latest = LogBounds(self._plan.options).latest(tolerate_missing=not fail_on_data_loss)
        end = advance_offsets(begin, self._capped(self._latest, begin), fail_on_data_loss)
        pending = sum(planned.size for planned in plan_ranges(begin, end))
        if (
            self._pacing is not None
            and self._target is None
            and self._pacing.must_wait(pending, time.monotonic() * 1000)
        ):
            return start
        return offsets_to_json(_limited(begin, end, limit))

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802
        """Return the high watermarks of the last planning, for the query's progress."""
        return None if self._latest is None else offsets_to_json(self._latest)

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        """Return the ranges of one micro-batch; none if the end is not after the start."""
        return self._split(offsets_from_json(start), offsets_from_json(end))

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Do nothing: Spark's checkpoint has the offsets, and the cluster need not know them."""

    def _capped(self, latest: Offsets, begin: Offsets) -> Offsets:
        if self._target is None:
            return latest
        # In an earlier run a restarted query may have read beyond the target; it never goes back.
        return {
            key: min(offset, max(self._target[key], begin.get(key, 0)))
            for key, offset in latest.items()
            if key in self._target
        }


def _limited(begin: Offsets, end: Offsets, limit: ReadLimit) -> Offsets:
    match limit:
        case ReadAllAvailable():
            return end
        case ReadMaxRows(max_rows=max_rows):
            return limit_offsets(begin, end, max_rows)
        case _:
            raise error_for(ErrorCode._NOT_IMPLEMENTED, f"the read limit {limit} is not supported")
