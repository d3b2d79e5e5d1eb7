"""The committed metadata log as a stream for observers (FollowMetadata).

Each follower has its own place in a shared tail of the log, which is bounded in entries and bytes; one that asks for
the beginning, or for what the tail has dropped, first gets an image as a snapshot, and what was committed since from
the tail. A snapshot is encoded once for all who need one at about the same time. A follower pulls at its own speed and
what is sent to it is looked up response by response, so a slow one costs nothing but its place, and gets a snapshot
when the tail has moved on. An entry that is too large for a response is cut into parts. When nothing is committed a
follower still hears the committed offset every second, so that it notices a dead controller.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.metadata import MAX_BATCH_BYTES, MetadataImage, cut_batch
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.server.encoded_image import EncodedImage

IDLE_INTERVAL_S = 1.0
_MAX_ENTRIES_PER_RESPONSE = 1_000
_SNAPSHOT_KEPT_S = 30.0


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    epoch: int
    parts: tuple[bytes, ...]
    size: int

    def messages(self) -> list[pb.MetadataEntry]:
        last = len(self.parts) - 1
        return [
            pb.MetadataEntry(offset=self.offset, epoch=self.epoch, batch=part, is_continued=index < last)
            for index, part in enumerate(self.parts)
        ]


class MetadataFeed:
    """Lives as long as the process, on the event loop; the listener of the log publishes, gRPC streams follow."""

    def __init__(
        self,
        max_entries: int = 10_000,
        max_bytes: int = 16 * 1024 * 1024,
        max_response_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_response_bytes = max_response_bytes
        self._tail: list[_Entry] = []
        self._tail_bytes = 0
        self._tail_start = 0
        self._image = MetadataImage()
        self._snapshot: EncodedImage | None = None
        self._snapshot_used_s = 0.0
        self._leader_id = -1
        self._voters = VoterSet()
        self._published = asyncio.Event()

    @property
    def voters(self) -> VoterSet:
        """The voters that followers are told."""
        return self._voters

    def set_leader(self, leader_id: int) -> None:
        """Note the leading controller, -1 for none; followers hear it with their next response."""
        self._leader_id = leader_id

    def set_voters(self, voters: VoterSet) -> None:
        """Tell all followers who the controllers are."""
        self._voters = voters
        self.wake()

    def publish(self, entries: Sequence[CommittedEntry], image: MetadataImage) -> None:
        """Add committed entries and the image that they lead to."""
        for entry in entries:
            self._add(entry)
        self._image = image
        self.wake()

    def restore(self, image: MetadataImage) -> None:
        """Begin anew with an image that came as a snapshot; followers that are not beyond it get one too."""
        self._tail.clear()
        self._tail_bytes = 0
        self._tail_start = image.offset + 1
        self._image = image
        self._snapshot = None
        self.wake()

    def wake(self) -> None:
        """Let the followers look for new entries."""
        self._published.set()
        self._published = asyncio.Event()

    def _add(self, entry: CommittedEntry) -> None:
        payload = entry.payload
        is_large = len(payload) > self._max_response_bytes
        parts = tuple(cut_batch(payload, self._max_response_bytes)) if is_large else (payload,)
        self._tail.append(_Entry(entry.index, entry.term, parts, len(payload)))
        self._tail_bytes += len(payload)
        dropped = 0
        while len(self._tail) - dropped > self._max_entries or self._tail_bytes > self._max_bytes:
            self._tail_start = self._tail[dropped].offset + 1
            self._tail_bytes -= self._tail[dropped].size
            dropped += 1
        del self._tail[:dropped]

    async def follow(self, from_offset: int) -> AsyncIterator[pb.FollowMetadataResponse]:
        """Yield all that is committed from an offset on, without end; see the module for snapshots and idle times."""
        position = from_offset
        told: VoterSet | None = None
        while True:
            published = self._published
            async for response, following in self._available(position):
                told = self._tell_voters(response, told)
                yield response
                position = following
            if told is not self._voters:
                response = self._response(())
                told = self._tell_voters(response, told)
                yield response
            elif published is self._published and not await _is_set(published, IDLE_INTERVAL_S):
                self._drop_unused_snapshot()
                yield self._response(())

    async def _available(self, position: int) -> AsyncIterator[tuple[pb.FollowMetadataResponse, int]]:
        """Yield responses up to what is committed, each with the next position wanted."""
        while position <= self._image.offset:
            if position <= 0 or position < self._tail_start:
                snapshot = self._current_snapshot()
                async for response in self._send_snapshot(snapshot):
                    yield response, 0
                position = snapshot.offset + 1
                continue
            for entries, following in self._next_entries(position):
                yield self._response(entries), following
                position = following

    def _next_entries(self, position: int) -> list[tuple[list[pb.MetadataEntry], int]]:
        """Return the entries of the next response; one that must be cut comes alone, in several."""
        index = bisect_left(self._tail, position, key=lambda e: e.offset)
        if index == len(self._tail):
            return [([], self._image.offset + 1)]
        first = self._tail[index]
        if len(first.parts) > 1:
            *parts, last = first.messages()
            return [*(([part], position) for part in parts), ([last], first.offset + 1)]
        entries: list[pb.MetadataEntry] = []
        size = 0
        for entry in self._tail[index : index + _MAX_ENTRIES_PER_RESPONSE]:
            size += entry.size
            if len(entry.parts) > 1 or (entries and size > self._max_response_bytes):
                break
            entries += entry.messages()
            position = entry.offset + 1
        return [(entries, position)]

    async def _send_snapshot(self, snapshot: EncodedImage) -> AsyncIterator[pb.FollowMetadataResponse]:
        index, is_last = 0, False
        while not is_last:
            batch = await snapshot.batch(index)
            is_last = batch.is_last
            entry = pb.MetadataEntry(offset=snapshot.offset, epoch=snapshot.epoch, batch=batch.data)
            response = self._response([entry])
            response.snapshot_begin = index == 0
            response.snapshot_end = is_last
            self._snapshot_used_s = time.monotonic()
            yield response
            index += 1

    def _current_snapshot(self) -> EncodedImage:
        """Return the one that there is when the tail goes on where it ends, else one of the present image."""
        if self._snapshot is None or self._snapshot.offset + 1 < self._tail_start:
            self._snapshot = EncodedImage(self._image)
        return self._snapshot

    def _drop_unused_snapshot(self) -> None:
        if self._snapshot is not None and time.monotonic() - self._snapshot_used_s > _SNAPSHOT_KEPT_S:
            self._snapshot = None

    def _response(self, entries: Sequence[pb.MetadataEntry]) -> pb.FollowMetadataResponse:
        return pb.FollowMetadataResponse(
            entries=entries, committed_offset=self._image.offset, leader_id=self._leader_id
        )

    def _tell_voters(self, response: pb.FollowMetadataResponse, told: VoterSet | None) -> VoterSet:
        """Add the voters to a response to one who was told others, or nothing; return who is told now."""
        if told is not self._voters:
            response.voters.CopyFrom(self._voters.to_message())
        return self._voters


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
