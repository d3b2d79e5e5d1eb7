"""Groups neighbouring segments to be merged (Kafka's Cleaner.groupSegmentsBySize). Pure: no I/O.

Cleaned segments are small; without grouping a log would become many files with few batches. The segments of a group fit
into one segment even if nothing is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_RELATIVE_OFFSET = 2**31 - 1


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
