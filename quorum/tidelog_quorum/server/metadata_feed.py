"""The shell of the metadata feed: streams of FollowMetadata, whose responses ``controller.feed`` decides.

The images of snapshots are encoded in threads, once for all who need them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Sequence

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.controller import feed as core
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.raft.voters_record import voters_to_message
from tidelog_quorum.server.encoded_image import EncodedImage

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

    def set_leader(self, leader_id: int) -> None:
        """Note the leading controller, -1 for none; followers hear it with their next response."""
        self._step(core.LeaderTold(leader_id))

    def set_voters(self, voters: VoterSet) -> None:
        """Tell all followers which controllers have a vote."""
        self._step(core.VotersTold(voters))

    def publish(self, entries: Sequence[CommittedEntry], image: MetadataImage) -> None:
        """Give followers committed entries, which lead to an image."""
        self._step(core.Published(entries, image))

    def restore(self, image: MetadataImage) -> None:
        """Begin anew with an image that came as a snapshot."""
        self._step(core.Restored(image))

    async def follow(self, from_offset: int) -> AsyncGenerator[pb.FollowMetadataResponse, None]:
        """Yield all that is committed from an offset on, without end; to be closed."""
        follower_id = next(self._follower_ids)
        self._step(core.Joined(follower_id, from_offset))
        try:
            while True:
                command = await self._command_after(core.Ready(follower_id), follower_id)
                while isinstance(command, core.EncodeBatch):
                    batch = await self._images[command.offset].batch(command.index)
                    encoded = core.BatchEncoded(follower_id, batch.data, batch.is_last)
                    command = await self._command_after(encoded, follower_id)
                yield _to_message(command.response)
        finally:
            self._step(core.Left(follower_id))

    async def _command_after(self, event: core.Event, follower_id: int) -> core.Respond | core.EncodeBatch:
        """Step an event and wait for what the follower gets next."""
        future: asyncio.Future[core.Respond | core.EncodeBatch] = asyncio.get_running_loop().create_future()
        self._waiting[follower_id] = future
        self._step(event)
        while not future.done():
            await asyncio.wait([future], timeout=IDLE_INTERVAL_S)
            if not future.done():
                self._step(core.Waited(follower_id))
        del self._waiting[follower_id]
        return future.result()

    def _step(self, event: core.Event) -> None:
        for command in self._core.step(event, time.monotonic_ns() // 1_000_000):
            match command:
                case core.KeepImage(image):
                    self._images[image.offset] = EncodedImage(image)
                case core.DropImage(offset):
                    del self._images[offset]
                case core.Respond(follower_id) | core.EncodeBatch(follower_id):
                    self._waiting[follower_id].set_result(command)


def _to_message(response: core.FeedResponse) -> pb.FollowMetadataResponse:
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
        message.voters.CopyFrom(voters_to_message(response.voters))
    return message
