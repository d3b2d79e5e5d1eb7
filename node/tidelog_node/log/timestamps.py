"""Finds records by their timestamps (KIP-33, KIP-734); the time index gives the first batch to read.

A search is a generator of the batches to look into. Its driver sends back the record found in each batch, and may look
in a thread: between two batches a search keeps only offsets, so the log may change meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import NamedTuple

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import FoundRecord, RecordBatchHeader, find_greatest, find_timestamp
from tidelog_foundation.records.header import COMPRESSION_MASK
from tidelog_node.log.segments.indexes import NO_TIMESTAMP
from tidelog_node.log.segments.segment import Segment


class Look(NamedTuple):
    """A look into one batch. ``compressed_size`` is the batch's size, or 0 if it is not compressed.

    ``find`` takes the limit on the batch's decompressed bytes and raises OversizedRecordsError. It is safe in a thread.
    """

    find: Callable[[int | None], FoundRecord | None]
    compressed_size: int


@dataclass(frozen=True, slots=True)
class TimestampAndOffset:
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: LeaderEpoch


TimestampSearch = Generator[Look, FoundRecord | None, TimestampAndOffset | None]
"""Yields looks, receives the record found by each, and returns the result."""


class Candidate(NamedTuple):
    """A batch that may contain the record."""

    batch: bytes
    header: RecordBatchHeader

    @property
    def compressed_size(self) -> int:
        """The batch's size, or 0 if it is not compressed."""
        return len(self.batch) if self.header.attributes & COMPRESSION_MASK else 0


class NewestTimestamp(NamedTuple):
    """The largest timestamp of whole batches, -1 if none has one, and a batch that counts only in part.

    ``partial`` is None if even the whole batch has no larger timestamp.
    """

    timestamp_ms: int
    partial: Candidate | None


def next_candidate(segments: Iterable[Segment], timestamp_ms: int, min_offset: int) -> Candidate | None:
    """Return the first batch from ``min_offset`` on whose max timestamp is ``timestamp_ms`` or later.

    Segments come oldest first. Raises OSError if the disk refuses.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        start = segment.locate(max(segment.indexes.offset_before(timestamp_ms), min_offset))
        for position, header in () if start is None else segment.headers(start[0]):
            if header.max_timestamp >= timestamp_ms:
                return Candidate(segment.read_at(position, header.size_in_bytes), header)
    return None


def newest_timestamp(segments: Iterable[Segment], min_offset: int) -> NewestTimestamp:
    """Return the largest timestamp from ``min_offset`` on. Raises OSError when the disk refuses."""
    newest, partial_batch = NO_TIMESTAMP, None
    for segment in segments:
        if min_offset <= segment.base_offset:
            newest = max(newest, segment.max_timestamp)
            continue
        start = segment.locate(min_offset)
        for position, header in () if start is None else segment.headers(start[0]):
            if header.base_offset >= min_offset:
                newest = max(newest, header.max_timestamp)
            else:
                partial_batch = Candidate(segment.read_at(position, header.size_in_bytes), header)
    if partial_batch is not None and partial_batch.header.max_timestamp <= newest:
        partial_batch = None
    return NewestTimestamp(newest, partial_batch)


def search_timestamp(
    next_batch: Callable[[int, int], Candidate | None], timestamp_ms: int, min_offset: int
) -> TimestampSearch:
    """Search for the first record from ``min_offset`` on with ``timestamp_ms`` or later.

    ``next_batch`` calls :func:`next_candidate` with a timestamp and an offset.
    """
    while (candidate := next_batch(timestamp_ms, min_offset)) is not None:
        find = partial(find_timestamp, candidate.batch, timestamp_ms, min_offset)
        found = yield Look(find, candidate.compressed_size)
        if found is not None:
            return _result(found, candidate)
        min_offset = candidate.header.next_offset
    return None


def search_greatest(
    next_batch: Callable[[int, int], Candidate | None], newest: NewestTimestamp, min_offset: int
) -> TimestampSearch:
    """Search for the first record from ``min_offset`` on with the largest timestamp."""
    timestamp_ms, partial_batch = newest
    if partial_batch is not None:
        find = partial(find_greatest, partial_batch.batch, min_offset)
        found = yield Look(find, partial_batch.compressed_size)
        if found is not None and found.timestamp_ms >= timestamp_ms:
            return _result(found, partial_batch)
    if timestamp_ms == NO_TIMESTAMP:
        return None
    return (yield from search_timestamp(next_batch, timestamp_ms, min_offset))


def _result(found: FoundRecord, candidate: Candidate) -> TimestampAndOffset:
    return TimestampAndOffset(found.timestamp_ms, found.offset, LeaderEpoch(candidate.header.partition_leader_epoch))
