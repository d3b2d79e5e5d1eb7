"""Retention rules: the segments of a log to delete (Kafka's UnifiedLog.deleteOldSegments). Pure: no I/O.

Only the oldest segments, and only those entirely below the high watermark, are deleted, so a log never starts above it.
The rules apply in this order: segments below the log start offset, whatever the policy; with ``cleanup.policy=delete``,
segments without which the log still has ``retention.bytes``; and segments whose largest timestamp is older than
``retention.ms``. The last two rules may include the active segment, unless it is empty; it is rolled before its
deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from tidelog_foundation.dataclass import dataclass
from tidelog_node.log.config import LogConfig


class Reason(Enum):
    """The reason why a segment is deleted."""

    LOG_START = "it is below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its records are older than retention.ms"


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """The extent of a segment: the base offset of its successor, or the log's end, and its size in bytes."""

    end_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class RetentionPoint:
    """The state of the log that the retention rules use."""

    log_start_offset: int
    high_watermark: int
    now_ms: int


def find_expired(
    extents: Sequence[SegmentExtent],
    largest_timestamp: Callable[[int], int],
    config: LogConfig,
    point: RetentionPoint,
) -> list[Reason]:
    """Return one reason for each of the oldest segments to delete, oldest first.

    ``extents`` has all segments, oldest first, the active one last. ``largest_timestamp`` returns the largest timestamp
    of the segment at an index, in milliseconds; it is called only when ``retention.ms`` decides.
    """
    reasons: list[Reason] = []
    deletable = _count_deletable(extents, point.high_watermark)
    while len(reasons) < min(deletable, len(extents) - 1):
        if extents[len(reasons)].end_offset > point.log_start_offset:
            break
        reasons.append(Reason.LOG_START)
    if not config.is_deleted:
        return reasons
    if config.retention_bytes >= 0:
        excess = sum(extent.size for extent in extents[len(reasons) :]) - config.retention_bytes
        while len(reasons) < deletable and excess >= extents[len(reasons)].size:
            excess -= extents[len(reasons)].size
            reasons.append(Reason.SIZE)
    if config.retention_ms >= 0:
        while len(reasons) < deletable and point.now_ms - largest_timestamp(len(reasons)) > config.retention_ms:
            reasons.append(Reason.TIME)
    return reasons


def _count_deletable(extents: Sequence[SegmentExtent], high_watermark: int) -> int:
    count = 0
    for extent in extents:
        if extent.end_offset > high_watermark:
            return count
        count += 1
    return count if extents[-1].size else count - 1
