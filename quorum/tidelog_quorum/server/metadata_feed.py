"""The committed metadata log as a stream for observers (FollowMetadata).

Each follower has its own place in a shared tail of the log, which is bounded in entries and bytes; one that asks for
the beginning, or for what the tail has dropped, first gets the image as a snapshot. A follower pulls at its own speed,
so a slow one costs nothing but its place, and gets a snapshot when the tail has moved on. When nothing is committed a
follower still hears the committed offset twice a second, so that it notices a dead controller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.metadata.codec import to_message
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord

IDLE_INTERVAL_S = 0.5
_MAX_RECORDS_PER_RESPONSE = 1_000


class MetadataFeed:
    """Lives as long as the process, on the event loop; the listener of the log publishes, gRPC streams follow."""

    def __init__(self, max_entries: int = 10_000, max_bytes: int = 16 * 1024 * 1024) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._tail: deque[pb.MetadataEntry] = deque()
        self._tail_bytes = 0
        self._image = MetadataImage()
        self._leader_id = -1
        self._published = asyncio.Event()

    def set_leader(self, leader_id: int) -> None:
        """Note the leading controller, -1 for none; followers hear it with their next response."""
        self._leader_id = leader_id

    def publish(self, entry: pb.MetadataEntry, image: MetadataImage) -> None:
        """Add a committed entry and the image that it leads to; call :meth:`wake` after the last of several."""
        self._tail.append(entry)
        self._tail_bytes += entry.ByteSize()
        self._image = image
        while len(self._tail) > self._max_entries or self._tail_bytes > self._max_bytes:
            self._tail_bytes -= self._tail.popleft().ByteSize()

    def wake(self) -> None:
        """Let the followers look for new entries."""
        self._published.set()
        self._published = asyncio.Event()

    async def follow(self, from_offset: int) -> AsyncIterator[pb.FollowMetadataResponse]:
        """Yield all that is committed from an offset on, without end; see the module for snapshots and idle times."""
        position = from_offset
        while True:
            published = self._published
            for response in self._available(position):
                yield response
                position = max([position, *(e.offset + 1 for e in response.entries)])
            if published is self._published and not await _is_set(published, IDLE_INTERVAL_S):
                yield self._response(())

    def _available(self, position: int) -> Iterator[pb.FollowMetadataResponse]:
        """Yield what is there at the first step; what is published meanwhile is left for the next call."""
        if position > self._image.offset:
            return
        tail_start = self._tail[0].offset if self._tail else self._image.offset + 1
        if position <= 0 or position < tail_start:
            yield from self._snapshot()
            return
        # Offsets may have gaps, so the place is searched, from the end as followers are mostly near it.
        behind = sum(1 for _ in _while_at_least(reversed(self._tail), position))
        entries = list(islice(self._tail, len(self._tail) - behind, None))
        for chunk in _chunks(entries):
            yield self._response(chunk)

    def _snapshot(self) -> Iterator[pb.FollowMetadataResponse]:
        image = self._image
        records = image.to_records()
        starts = range(0, max(1, len(records)), _MAX_RECORDS_PER_RESPONSE)
        for start in starts:
            response = self._response([_entry(image, records[start : start + _MAX_RECORDS_PER_RESPONSE])])
            response.snapshot_begin = start == 0
            response.snapshot_end = start == starts[-1]
            yield response

    def _response(self, entries: Sequence[pb.MetadataEntry]) -> pb.FollowMetadataResponse:
        return pb.FollowMetadataResponse(
            entries=entries, committed_offset=self._image.offset, leader_id=self._leader_id
        )


def _entry(image: MetadataImage, records: Iterable[MetadataRecord]) -> pb.MetadataEntry:
    return pb.MetadataEntry(offset=image.offset, epoch=image.epoch, records=[to_message(r) for r in records])


def _while_at_least(entries: Iterable[pb.MetadataEntry], offset: int) -> Iterator[pb.MetadataEntry]:
    for entry in entries:
        if entry.offset < offset:
            return
        yield entry


def _chunks(entries: Sequence[pb.MetadataEntry]) -> Iterator[list[pb.MetadataEntry]]:
    """Split so that a response has about the same size at most, however large the entries are."""
    chunk: list[pb.MetadataEntry] = []
    records = 0
    for entry in entries:
        chunk.append(entry)
        records += 1 + len(entry.records)
        if records >= _MAX_RECORDS_PER_RESPONSE:
            yield chunk
            chunk, records = [], 0
    if chunk:
        yield chunk


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
