"""Which neighbouring segments become one (Kafka's Cleaner.groupSegmentsBySize), without I/O.

Cleaned segments are small; without grouping a log would end as many files of a few batches. What is grouped together
would fit into one segment even if nothing were removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_RELATIVE_OFFSET = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SegmentSize:
    """A sealed segment: where it begins, and the bytes of its log, its index and its time index."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int

    def __add__(self, other: SegmentSize) -> SegmentSize:
        """Return the two as one segment."""
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

    A segment that is too large by itself is a group by itself. Offsets are bounded by the next segment's base.
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
