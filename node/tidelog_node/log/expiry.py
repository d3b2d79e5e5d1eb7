"""Applies the retention rules to the segments of a log."""

from __future__ import annotations

from tidelog_node.log.config import LogConfig
from tidelog_node.log.retention import Reason, RetentionPoint, SegmentExtent, find_expired
from tidelog_node.log.segments.segment_list import Segments


def find_expired_segments(
    segments: Segments, log_end_offset: int, config: LogConfig, point: RetentionPoint
) -> list[Reason]:
    """Return one reason for each of the oldest segments to delete, oldest first. Raises OSError."""
    ends = [*segments.base_offsets[1:], log_end_offset]
    extents = [SegmentExtent(end, segment.size) for end, segment in zip(ends, segments, strict=True)]
    return find_expired(extents, lambda index: segments[index].largest_timestamp, config, point)
