"""Which part of a log may be cleaned, and which log is cleaned next (Kafka's LogCleanerManager), without I/O.

A log is clean below its checkpoint, dirty from there on. Cleaned is what is dirty and sealed, below the last stable
offset and the recovery point, and not written within ``min.compaction.lag.ms`` (KIP-58); whole segments, so that the
last one that may be cleaned ends where the next begins. The recovery point is a rule of our own: what a crash can
take from the disk must not have replaced anything yet.

A log is due when its dirty share is above ``min.cleanable.dirty.ratio``, or when a dirty record is older than
``max.compaction.lag.ms`` (KIP-354). The filthiest comes first.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidelog_foundation.config.topic import TopicConfig

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """What the policy asks of a sealed segment; timestamps in milliseconds, -1 when no record has one.

    ``max_timestamp`` counts only with a ``min.compaction.lag.ms``, ``first_timestamp`` (the largest of the first
    batch) only with a ``max.compaction.lag.ms``.
    """

    base_offset: int
    size: int
    max_timestamp: int = -1
    first_timestamp: int = -1


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as the policy sees it: its sealed segments, oldest first; ``checkpoint`` is None when it has none."""

    segments: tuple[SealedSegment, ...]
    log_start_offset: int
    active_base_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The dirty range [first_dirty_offset, first_uncleanable_offset) and what the decision needs.

    ``is_reset`` says that the checkpoint does not fit the log and that all of the log counts as dirty.
    ``first_uncleanable_offset`` is the base of a segment. ``overdue_ms`` is how much longer than allowed the
    oldest dirty segment has waited.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    is_reset: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty bytes' share of what is clean or cleanable; 0 for an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Return whether the log is cleaned when its turn comes."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio)


def cleanable_range(log: LogState, config: TopicConfig, now_ms: int) -> Cleanable:
    """Return what may be cleaned of a log."""
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
    """Return the key of the due log with the largest dirty share, or None; the float is its least dirty ratio."""
    due = [(cleanable.dirty_ratio, key) for key, cleanable, min_ratio in candidates if cleanable.is_due(min_ratio)]
    return max(due, key=lambda pair: pair[0])[1] if due else None


def _first_dirty_offset(log: LogState) -> tuple[int, bool]:
    if log.checkpoint is None:
        return log.log_start_offset, False
    if log.log_start_offset <= log.checkpoint <= log.log_end_offset:
        return log.checkpoint, False
    return log.log_start_offset, True


def _index_of(bases: Sequence[int], offset: int) -> int:
    """Return the index of the segment that an offset lies in."""
    return max(bisect.bisect_right(bases, offset) - 1, 0)


def _recent(dirty: Iterable[SealedSegment], min_lag_ms: int, now_ms: int) -> list[int]:
    """Return the base of the first segment that is too recent, as a list of one or none."""
    if min_lag_ms <= 0:
        return []
    return [segment.base_offset for segment in dirty if segment.max_timestamp > now_ms - min_lag_ms][:1]


def _overdue_ms(dirty: Iterable[SealedSegment], max_lag_ms: int, now_ms: int) -> int:
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms)
    return max(0, now_ms - max_lag_ms - oldest)
