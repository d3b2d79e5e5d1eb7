"""Finds records by their timestamps (KIP-33, KIP-734): the time index says from where on batches are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog.ids import LeaderEpoch
from tidelog.records import read_records
from tidelog_node.log.indexes import NO_TIMESTAMP
from tidelog_node.log.segment import Segment


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: LeaderEpoch


def find_by_timestamp(segments: Iterable[Segment], timestamp_ms: int, min_offset: int) -> TimestampAndOffset | None:
    """Return the first record from ``min_offset`` on that is as late as ``timestamp_ms``; None when there is none.

    Segments come oldest first. Raises OSError when the disk refuses.
    """
    for segment in segments:
        if segment.max_timestamp >= timestamp_ms:
            found = _find_in(segment, timestamp_ms, min_offset)
            if found is not None:
                return found
    return None


def find_max_timestamp(segments: Iterable[Segment], min_offset: int) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp of those from ``min_offset`` on; None when none has one.

    Raises OSError when the disk refuses.
    """
    newest, newest_segment = NO_TIMESTAMP, None
    for segment in segments:
        timestamp = _max_timestamp_from(segment, min_offset)
        if timestamp > newest:
            newest, newest_segment = timestamp, segment
    return None if newest_segment is None else _find_in(newest_segment, newest, min_offset)


def _find_in(segment: Segment, timestamp_ms: int, min_offset: int) -> TimestampAndOffset | None:
    start = segment.locate(max(segment.offset_before(timestamp_ms), min_offset))
    if start is None:
        return None
    for position, header in segment.headers(start[0]):
        if header.max_timestamp < timestamp_ms:
            continue
        for record in read_records(segment.read_at(position, header.size_in_bytes)):
            if record.timestamp_ms >= timestamp_ms and record.offset >= min_offset:
                return TimestampAndOffset(
                    record.timestamp_ms, record.offset, LeaderEpoch(header.partition_leader_epoch)
                )
    return None


def _max_timestamp_from(segment: Segment, offset: int) -> int:
    """Return the largest timestamp of the segment's records from ``offset`` on, or -1."""
    if offset <= segment.base_offset:
        return segment.max_timestamp
    newest, found = NO_TIMESTAMP, segment.locate(offset)
    for position, header in segment.headers(segment.size if found is None else found[0]):
        if header.max_timestamp <= newest:
            continue
        if header.base_offset >= offset:
            newest = header.max_timestamp
        else:
            records = read_records(segment.read_at(position, header.size_in_bytes))
            newest = max((record.timestamp_ms for record in records if record.offset >= offset), default=newest)
    return newest
