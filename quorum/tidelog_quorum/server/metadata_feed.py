"""The shell of the metadata feed: streams of FollowMetadata, whose responses ``controller.feed`` decides.

The images of snapshots are encoded in threads, once for all who need them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Iterator

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.controller import feed as core
from tidelog_quorum.metadata.batches import encode_batches
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.voters_record import voters_at, voters_to_message

IDLE_INTERVAL_S = 1.0


class MetadataFeed:
    """Lives as long as the process, on the event loop; the listener of the log publishes, gRPC streams follow."""

    def __init__(self, limits: core.FeedLimits | None = None) -> None:
        self._core = core.MetadataFeed(limits)
        self._follower_ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[core.Respond | core.EncodeBatch]] = {}
        self._images: dict[int, EncodedImage] = {}

    @property
    def voters(self) -> VoterSet:
        """The voters that followers are told."""
        return self._core.voters

    def step(self, event: core.Event) -> None:
        """Process an event of the log, the leader or the voters; a follower's events come from :meth:`follow`."""
        for command in self._core.step(event, time.monotonic_ns() // 1_000_000):
            match command:
                case core.KeepImage(image):
                    self._images[image.offset] = EncodedImage(image)
                case core.DropImage(offset):
                    del self._images[offset]
                case core.Respond(follower_id) | core.EncodeBatch(follower_id):
                    self._waiting[follower_id].set_result(command)

    async def follow(
        self, from_offset: int, listener: str = ANY_LISTENER
    ) -> AsyncGenerator[pb.FollowMetadataResponse, None]:
        """Yield all that is committed from an offset on, without end; to be closed.

        The follower learns the controllers' addresses of the ``listener`` that it uses.
        """
        follower_id = next(self._follower_ids)
        self.step(core.Joined(follower_id, from_offset))
        try:
            while True:
                command = await self._command_after(core.Ready(follower_id), follower_id)
                while isinstance(command, core.EncodeBatch):
                    batch = await self._images[command.offset].batch(command.index)
                    encoded = core.BatchEncoded(follower_id, batch.data, batch.is_last)
                    command = await self._command_after(encoded, follower_id)
                yield _to_message(command.response, listener)
        finally:
            self.step(core.Left(follower_id))

    async def _command_after(self, event: core.Event, follower_id: int) -> core.Respond | core.EncodeBatch:
        """Step an event and wait for what the follower gets next."""
        future: asyncio.Future[core.Respond | core.EncodeBatch] = asyncio.get_running_loop().create_future()
        self._waiting[follower_id] = future
        self.step(event)
        while not future.done():
            await asyncio.wait([future], timeout=IDLE_INTERVAL_S)
            if not future.done():
                self.step(core.Waited(follower_id))
        del self._waiting[follower_id]
        return future.result()


def _to_message(response: core.FeedResponse, listener: str) -> pb.FollowMetadataResponse:
    message = pb.FollowMetadataResponse(
        entries=[
            pb.MetadataEntry(offset=e.offset, epoch=e.epoch, batch=e.batch, is_continued=e.is_continued)
            for e in response.entries
        ],
        committed_offset=response.committed_offset,
        leader_id=response.leader_id,
        snapshot_begin=response.snapshot_begin,
        snapshot_end=response.snapshot_end,
    )
    if response.voters is not None:
        message.voters.CopyFrom(voters_to_message(voters_at(response.voters, listener)))
    return message


@dataclass(frozen=True, slots=True)
class ImageBatch:
    """One batch of an image, and whether it is the last one."""

    data: bytes
    is_last: bool


class EncodedImage:
    """The batches of one image, shared by its readers; all calls are on the event loop.

    A thread encodes a batch at a time, when the fastest reader needs the next one: no batch is encoded without a
    reader, and a slow reader only costs the memory of the batches.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.offset = image.offset
        self.epoch = image.epoch
        self._batches: list[bytes] = []
        self._rest: Iterator[bytes] | None = encode_batches(image.iterate_records())
        self._encoding = asyncio.Lock()

    async def batch(self, index: int) -> ImageBatch:
        """Return a batch; callers request them in order, up to the last one."""
        # One batch ahead, to know which is the last.
        while len(self._batches) < index + 2 and self._rest is not None:
            async with self._encoding:
                if len(self._batches) < index + 2 and self._rest is not None:
                    await self._encode_next(self._rest)
        return ImageBatch(self._batches[index], is_last=self._rest is None and index + 1 == len(self._batches))

    async def _encode_next(self, rest: Iterator[bytes]) -> None:
        # Finish even if the caller goes away: the thread has taken the batch out of the iterator.
        encoding = asyncio.ensure_future(asyncio.to_thread(next, rest, None))
        try:
            batch = await asyncio.shield(encoding)
        except asyncio.CancelledError:
            batch = await encoding
            self._take(batch)
            raise
        self._take(batch)

    def _take(self, batch: bytes | None) -> None:
        if batch is None:
            # Release the image.
            self._rest = None
        else:
            self._batches.append(batch)
