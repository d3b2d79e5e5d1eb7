"""Rules that select the next log to clean, its cleanable part, and the segments to merge. Pure: no I/O.

A log is clean below its checkpoint and dirty from there on. The cleanable part is dirty, sealed, below the last stable
offset and the recovery point, and older than ``min.compaction.lag.ms`` (KIP-58). It consists of whole segments. Kafka
has no limit at the recovery point; Tidelog adds it so that a cleaned segment never replaces data with data that a crash
can lose.

A log is due when its dirty ratio is above ``min.cleanable.dirty.ratio``, or when a dirty record is older than
``max.compaction.lag.ms`` (KIP-354). The log with the highest dirty ratio comes first (Kafka's LogCleanerManager).

Cleaned segments are small; without grouping a log would become many files with few batches. The segments of a group fit
into one segment even if nothing is removed (Kafka's Cleaner.groupSegmentsBySize).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from tidelog_foundation.config.topic import TopicConfig
from tidelog_foundation.dataclass import dataclass

K = TypeVar("K")
MAX_RELATIVE_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A sealed segment as the policy sees it; timestamps in milliseconds, -1 when no record has one.

    The policy reads ``max_timestamp`` only with a ``min.compaction.lag.ms``, and ``first_timestamp`` (the largest of
    the first batch) only with a ``max.compaction.lag.ms``.
    """

    base_offset: int
    size: int
    max_timestamp: int = -1
    first_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as the policy sees it: its sealed segments, oldest first. ``checkpoint`` is None when the log has none."""

    segments: tuple[SealedSegment, ...]
    log_start_offset: int
    active_base_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The dirty range [first_dirty_offset, first_uncleanable_offset) and the inputs of the decision to clean it.

    ``is_reset`` means that the checkpoint does not fit the log, so the whole log counts as dirty.
    ``first_uncleanable_offset`` is the base of a segment. ``overdue_ms`` is the time by which the oldest dirty segment
    exceeds ``max.compaction.lag.ms``.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    is_reset: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty share of the clean and cleanable bytes; 0 for an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Return whether the log needs cleaning."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio)


def cleanable_range(log: LogState, config: TopicConfig, now_ms: int) -> Cleanable:
    """Return the cleanable range of a log."""
    first_dirty, is_reset = _first_dirty_offset(log)
    bases = [segment.base_offset for segment in log.segments]
    dirty = log.segments[_index_of(bases, first_dirty) :] if first_dirty < log.active_base_offset else ()
    limits = (log.last_stable_offset, log.recovery_point, log.active_base_offset)
    limit = max(first_dirty, min(*limits, *_recent(dirty, config.min_compaction_lag_ms, now_ms)))
    first_uncleanable = log.active_base_offset
    if limit < log.active_base_offset and bases:
        first_uncleanable = bases[_index_of(bases, limit)]
    return Cleanable(
        first_dirty,
        first_uncleanable,
        clean_bytes=sum(segment.size for segment in log.segments if segment.base_offset < first_dirty),
        cleanable_bytes=sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        overdue_ms=_overdue_ms(dirty, config.max_compaction_lag_ms, now_ms),
        is_reset=is_reset,
    )


def filthiest(candidates: Iterable[tuple[K, Cleanable, float]]) -> K | None:
    """Return the key of the due log with the highest dirty ratio, or None. The float is min.cleanable.dirty.ratio."""
    due = [(cleanable.dirty_ratio, key) for key, cleanable, min_ratio in candidates if cleanable.is_due(min_ratio)]
    return max(due, key=lambda pair: pair[0])[1] if due else None


def _first_dirty_offset(log: LogState) -> tuple[int, bool]:
    if log.checkpoint is None:
        return log.log_start_offset, False
    if log.log_start_offset <= log.checkpoint <= log.log_end_offset:
        return log.checkpoint, False
    return log.log_start_offset, True


def _index_of(bases: Sequence[int], offset: int) -> int:
    """Return the index of the segment that contains an offset."""
    return max(bisect.bisect_right(bases, offset) - 1, 0)


def _recent(dirty: Iterable[SealedSegment], min_lag_ms: int, now_ms: int) -> list[int]:
    """Return the base of the first segment that is too recent, as a list of at most one element."""
    if min_lag_ms <= 0:
        return []
    return [segment.base_offset for segment in dirty if segment.max_timestamp > now_ms - min_lag_ms][:1]


def _overdue_ms(dirty: Iterable[SealedSegment], max_lag_ms: int, now_ms: int) -> int:
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms)
    return max(0, now_ms - max_lag_ms - oldest)


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A sealed segment: its base offset, and the sizes of its log, its index and its time index in bytes."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int

    def __add__(self, other: SegmentSize) -> SegmentSize:
        """Return the sum of both as one segment."""
        return SegmentSize(
            self.base_offset,
            self.log_bytes + other.log_bytes,
            self.index_bytes + other.index_bytes,
            self.time_index_bytes + other.time_index_bytes,
        )


def group_segments(
    segments: Sequence[SegmentSize], *, max_log_bytes: int, max_index_bytes: int, end_offset: int
) -> list[slice]:
    """Return the groups as slices of ``segments``, which are in order and end before ``end_offset``.

    A segment that is too large to merge is a group of its own. The next segment's base limits the offsets of a segment.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    starts: list[int] = []
    total = SegmentSize(0, 0, 0, 0)
    for index, (segment, end) in enumerate(zip(segments, ends, strict=False)):
        joined = total + segment
        has_offsets = segment.log_bytes == 0 or end - 1 - joined.base_offset <= MAX_RELATIVE_OFFSET
        has_indexes = max(joined.index_bytes, joined.time_index_bytes) <= max_index_bytes
        if starts and has_offsets and has_indexes and joined.log_bytes <= max_log_bytes:
            total = joined
        else:
            starts.append(index)
            total = segment
    return [slice(start, stop) for start, stop in pairwise([*starts, len(segments)])]
