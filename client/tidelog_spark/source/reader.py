"""The readers: the batch reader plans ranges once, the micro-batch reader for each batch; a task reads each range.

The calls of Spark for a stream:

    call            batch 0 of a new query             later batches                      replay after a crash
    initialOffset   a mark, nothing is looked up       not called                         as in batch 0, for batch 0
    prepareFor...   target: the ends of the logs now   as in batch 0                      as in batch 0
    latestOffset    resolves startingOffsets;          the end, or the text of the        not called: Spark has logged
                    the end, with the start in it      start if there is nothing new      the end
    partitions      from the start in the end          from the end of the batch before   the same offsets as before

The end is the end of each log, at most the target of Trigger.AvailableNow, at most maxOffsetsPerTrigger after the
start. The rules:

- Spark logs only the ends. Batch 0 has its start in its end, so its replay needs no second look at startingOffsets,
  for which "latest", a timestamp or the number of partitions may have changed.
- Trigger.AvailableNow reads topics and partitions that exist at its start, up to their ends then; a topic that is
  created again meanwhile is left to the next run.
- A new partition, or a new topic of a pattern, is read from its first record.
- A topic with another id than in the start is another topic: the rest of the old one is lost, and the new one is read
  from its first record. A range and its fetches have the topic's id, so tasks cannot read another topic's records.
- Partitions that are gone, or no longer selected, keep their offsets in all later ends.
- A loss is an error, or skipped and counted (`tidelog_spark.source.losses`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_spark.source.bounds import LogBounds
from tidelog_spark.source.fetcher import fetch_range
from tidelog_spark.source.filters import RowBounds, bound_rows, skip_older
from tidelog_spark.source.losses import Loss, LossLedger
from tidelog_spark.source.micro_batches import find_topic_losses, next_end, offsets_gone, pending_offsets, plan_batch
from tidelog_spark.source.offsets import OffsetRange, plan_ranges, split_ranges
from tidelog_spark.source.options import ReadPlan
from tidelog_spark.source.rows import read_rows
from tidelog_spark.source.stream_offsets import UNRESOLVED, Logs, OffsetTree, StreamOffsets, from_json, to_json


class RangePartition(InputPartition):
    """A range of offsets in the form that Spark sends to a task."""

    def __init__(self, planned: OffsetRange) -> None:
        super().__init__(planned)


class _RangeReader:
    """The part common to both readers, which every task calls."""

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan = plan
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def _split(self, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        options = self._plan.options
        parts = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
        return [RangePartition(planned) for planned in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a `RangePartition`; Spark creates one with None when nothing was planned.

        Raises:
            TidelogError: as `tidelog_spark.source.fetcher.fetch_range`.
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

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        super().__init__(plan, schema)
        self._bounds = RowBounds()

    def partitions(self) -> list[InputPartition]:
        """Return one range per partition with offsets to read, more with ``minPartitions``.

        Raises:
            TidelogError: a topic does not exist, no node answers, or offsets are not in the log.
        """
        plan = self._plan
        log = LogBounds(plan.options)
        start, end = log.resolve(plan.starting, plan.ending)
        ranges = self._bounds.narrow(plan_ranges(start.offsets, end.offsets, end.ids))
        if self._bounds.since_ms is not None:
            ranges = skip_older(ranges, log.search(ranges, self._bounds.since_ms))
        return self._split(ranges)


class FilteredReader(TidelogReader):
    """Reads only what the filters of a query may keep.

    Spark refuses a reader that has `pushFilters` while ``spark.sql.python.filterPushdown.enabled`` is false, so
    `batch_reader` returns this one only in a process that Spark has started to push filters.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        """Narrow the ranges that `partitions` returns, and return the filters that Spark still has to evaluate."""
        self._bounds, left = bound_rows(filters)
        return left


_FILTERING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(plan: ReadPlan, schema: StructType) -> TidelogReader:
    """Return the reader of a batch query, which takes filters if Spark will push some."""
    return (FilteredReader if _FILTERING_WORKER in sys.modules else TidelogReader)(plan, schema)


class TidelogStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of micro-batches.

    One instance plans a whole query in its own process; its pickled copies only `read`.
    """

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        super().__init__(plan, schema)
        self._start: StreamOffsets | None = None
        self._target: Logs | None = None
        self._pacing = plan.options.pacing
        self._bounds: LogBounds | None = None
        self._logs: Logs | None = None
        self._planned: Sequence[OffsetRange] = ()
        self._losses = LossLedger()

    @property
    def losses(self) -> LossLedger:
        """The losses that this instance has found while planning; always empty with ``failOnDataLoss=true``."""
        return self._losses

    def initialOffset(self) -> OffsetTree:  # noqa: N802
        """Return a mark for the start of a new query, which the first planning resolves and logs."""
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return ``maxOffsetsPerTrigger`` as Spark's own limit."""
        limit = self._plan.options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Record the ends of the logs: this query reads up to them and ends."""
        self._target = self._log_bounds().look()

    def latestOffset(self, start: OffsetTree, limit: ReadLimit) -> OffsetTree:  # noqa: N802
        """Return the end of the next micro-batch, or ``start`` if there is nothing new.

        Raises:
            TidelogError: a topic does not exist, or no node answers.
            DataLossError: startingOffsets, or offsets at which the stream stands, are gone (see failOnDataLoss).
        """
        begin = self._parse_start(start)
        self._losses.begin_planning()
        before, self._logs = self._logs or self._target, self._log_bounds().look(begin.ids)
        self._losses.unsure += offsets_gone(self._planned, self._logs, self._is_selected)
        self._planned = ()
        self._report(find_topic_losses(begin, self._logs, self._is_selected, before))
        if self._must_wait(pending_offsets(begin, next_end(begin, self._logs, self._target, None))):
            return start
        end = next_end(begin, self._logs, self._target, _max_offsets(limit))
        if start == UNRESOLVED:
            return to_json(replace(end, start=begin))
        return start if end.is_at(begin) else to_json(end)

    def reportLatestOffset(self) -> OffsetTree | None:  # noqa: N802
        """Return the ends of the logs at the last planning, for the query's progress.

        Since the start of the query, the planner has found ``@lost`` offsets lost, and with its tasks, the query has
        lost at most ``@lostAtMost``. Neither key is there for zero.
        """
        if self._logs is None:
            return None
        counts = {"@lost": self._losses.total, "@lostAtMost": self._losses.at_most}
        lost = {key: count for key, count in counts.items() if count}
        return to_json(StreamOffsets(self._logs.latest, self._logs.ids)) | lost

    def partitions(self, start: OffsetTree, end: OffsetTree) -> list[InputPartition]:
        """Return the ranges of one micro-batch; none if the end is not after the start.

        Raises:
            TidelogError: no node answers.
            DataLossError: offsets of the micro-batch are gone (see failOnDataLoss).
        """
        until = from_json(end)
        # A replayed micro-batch was planned by another instance.
        logs = self._logs or self._log_bounds().look(until.ids)
        # The end of the first micro-batch has its start, except in checkpoints of older versions.
        begin = until.start or self._parse_start(start)
        ranges, losses = plan_batch(begin, until, logs, self._is_selected)
        self._report(losses)
        self._planned = ranges
        return self._split(ranges)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the offsets, and the cluster need not know them."""

    def _parse_start(self, start: OffsetTree) -> StreamOffsets:
        if start != UNRESOLVED:
            return from_json(start)
        if self._start is None:
            [self._start] = self._log_bounds().resolve(self._plan.starting)
        return self._start

    def _log_bounds(self) -> LogBounds:
        if self._bounds is None:
            self._bounds = LogBounds(self._plan.options)
        return self._bounds

    def _is_selected(self, topic: str) -> bool:
        return self._plan.options.topics.has_topic(topic)

    def _report(self, losses: Iterable[Loss]) -> None:
        self._losses.report(losses, self._plan.options.fail_on_data_loss)

    def _must_wait(self, pending: int) -> bool:
        if self._pacing is None or self._target is not None:
            return False
        return self._pacing.must_wait(pending, time.monotonic() * 1000)


def _max_offsets(limit: ReadLimit) -> int | None:
    match limit:
        case ReadAllAvailable():
            return None
        case ReadMaxRows(max_rows=max_rows):
            return max_rows
        case _:
            raise error_for(ErrorCode._NOT_IMPLEMENTED, f"the read limit {limit} is not supported")
