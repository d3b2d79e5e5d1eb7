"""Which segments of a log are deleted (Kafka's UnifiedLog.deleteOldSegments), without I/O.

Always the oldest ones, and only such as lie below the high watermark as a whole, so that a log never starts above it.
In this order: those below the log start offset, whatever the policy; with ``cleanup.policy=delete`` those without which
the log still has ``retention.bytes``; and those whose largest timestamp is older than ``retention.ms``. The active
segment may be among the last two, unless it is empty: it is rolled before it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tidelog_node.log.config import LogConfig


class Reason(Enum):
    """Why a segment is deleted."""

    LOG_START = "it is below the log start offset"
    SIZE = "the log is larger than retention.bytes"
    TIME = "its records are older than retention.ms"


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """A segment: where its successor, or for the active one the log's end, begins, and its bytes."""

    end_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class RetentionPoint:
    """The state of the log that decides with its segments."""

    log_start_offset: int
    high_watermark: int
    now_ms: int


def find_expired(
    extents: Sequence[SegmentExtent],
    largest_timestamp: Callable[[int], int],
    config: LogConfig,
    point: RetentionPoint,
) -> list[Reason]:
    """Return why each of the oldest segments is deleted; as many go as there are reasons.

    ``extents`` are all segments, oldest first, the active one last. ``largest_timestamp`` gives that of the segment of
    an index in milliseconds; it is asked only where ``retention.ms`` decides.
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
