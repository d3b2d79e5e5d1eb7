"""The asyncio shell of the cores that follow the metadata: streams, images built in threads, and their application.

One task reads responses and builds images from them, large ones in a thread. Another task applies the newest image.
:mod:`tidelog_node.broker.metadata_stream` and :mod:`tidelog_node.broker.image_application` contain the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias, assert_never

import grpc.aio

from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.lasting_objects import LastingObjects, building_lasting_objects
from tidelog_foundation.transport import error_from_rpc, raise_if_cancelled
from tidelog_foundation.transport.session_channel import log_in
from tidelog_node.broker import image_application, metadata_stream
from tidelog_node.broker.image_application import ImageApplication
from tidelog_node.broker.metadata_stream import EntryPart, MetadataStream, Responded, StreamTimings, Voters
from tidelog_node.broker.report import Report
from tidelog_node.event_loop import SystemClock
from tidelog_node.partitions import MetadataCache, PartitionRegistry
from tidelog_node.server.controller_client import configured_addresses
from tidelog_node.server.loaded_snapshots import LoadedSnapshots
from tidelog_quorum.metadata.batches import image_from_batches
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.image import MetadataImage, MetadataImageBuilder

logger = logging.getLogger(__name__)

_Build: TypeAlias = metadata_stream.BuildImage | metadata_stream.AdvanceImage
ErrorOf: TypeAlias = Callable[[str, grpc.aio.AioRpcError], Awaitable[TidelogError]]
_Stream: TypeAlias = "grpc.aio.UnaryStreamCall[pb.FollowMetadataRequest, pb.FollowMetadataResponse]"

_MAX_BYTES_ON_LOOP = 8 * 1024
"""About eighty partitions, which are decoded and applied in less than a millisecond."""

_MANY_NEW = 1_000
_OBJECTS_PER_PARTITION = 30
"""An estimate for the garbage collector, for each partition that this node hosts."""


class MetadataFollower:
    """Follows the metadata log for a node, in the task :meth:`run`."""

    def __init__(
        self,
        broker_id: BrokerId,
        incarnation_id: bytes,
        cluster_id: str,
        voters: Voters,
        channel: Callable[[str], grpc.aio.Channel],
        registry: PartitionRegistry,
        cache: MetadataCache,
        on_voters: Callable[[Voters], None],
        before_image: Callable[[MetadataImage], None],
        bootstrap: Sequence[tuple[str, int]] = (),
        on_fenced: Callable[[], None] = lambda: None,
        on_applied: Callable[[int], None] = lambda _: None,
        error_of: ErrorOf | None = None,
    ) -> None:
        """``on_fenced`` is called whenever this process changes from unfenced to fenced in the metadata.

        ``on_applied`` is called with the offset that the partitions have reached. ``error_of`` returns the error of a
        failed call to an address.
        """
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._channel = channel
        self._error_of = error_of or _unexplained
        self._registry = registry
        self._cache = cache
        self._on_voters = on_voters
        self._before_image = before_image
        self._on_fenced = on_fenced
        self._on_applied = on_applied
        self._clock = SystemClock()
        self._stream = MetadataStream(broker_id, voters, configured_addresses(voters, bootstrap), StreamTimings())
        self._application = ImageApplication(broker_id, incarnation_id)
        self._image = MetadataImage()
        self._to_open: metadata_stream.OpenStream | None = None
        self._to_build: _Build | None = None
        self._commands: deque[image_application.Command] = deque()
        self._has_commands = asyncio.Event()
        self._lasting = LastingObjects()
        self.snapshots = LoadedSnapshots(self._clock.monotonic_ms)
        self.is_current = asyncio.Event()
        """Set after the first image with this node's registration is applied."""

    async def run(self) -> None:
        """Follow until cancelled. A controller that fails or is silent for too long is replaced by the next one.

        Raises:
            TidelogError: INCONSISTENT_CLUSTER_ID, or DUPLICATE_BROKER_REGISTRATION if another process has registered
                with this node's id. In an exception group.
            ConfigError: Two log directories contain the same partition, and nothing determines the valid one. In an
                exception group.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apply_images(), name="apply-metadata")
            await self._follow_any()

    def note_registration(self, broker_epoch: BrokerEpoch) -> None:
        """Record a broker epoch. The metadata may have shown its record before the answer arrived."""
        self._tell(image_application.Registered(broker_epoch))

    def _tell(self, event: image_application.Event) -> None:
        self._commands.extend(self._application.step(event))
        self._has_commands.set()

    async def _apply_images(self) -> None:
        while True:
            await self._has_commands.wait()
            self._has_commands.clear()
            while self._commands:
                await self._apply(self._commands.popleft())

    async def _apply(self, command: image_application.Command) -> None:
        match command:
            case image_application.PublishBrokers():
                self._cache.publish_brokers(command.image)
            case image_application.ChangeSettings():
                self._before_image(command.image)
            case image_application.ChangeReplicas():
                await self._change_replicas(command)
            case image_application.ReportOffset():
                self._on_applied(command.offset)
            case image_application.RequestHeartbeat():
                self._on_fenced()
            case image_application.DiscardUnknown():
                await self._registry.discard_unknown()
            case image_application.Publish():
                self._cache.publish(command.image)
                self.is_current.set()
            case image_application.End():
                raise command.error
            case _:
                assert_never(command)

    async def _change_replicas(self, command: image_application.ChangeReplicas) -> None:
        before, image = command.before, command.image
        is_small = image.topics is before.topics
        delta = delta_between(before, image) if is_small else await asyncio.to_thread(delta_between, before, image)
        new = sum(change.before is None for change in delta.changed_partitions)
        with building_lasting_objects() if new >= _MANY_NEW else contextlib.nullcontext():
            await self._registry.apply(image, delta)
        self._lasting.add(_OBJECTS_PER_PARTITION * new)
        self._tell(image_application.ReplicasChanged())

    async def _follow_any(self) -> None:
        self._step(metadata_stream.Started())
        while True:
            if self._to_open is not None:
                command, self._to_open = self._to_open, None
                await self._follow(command)
            else:
                await asyncio.sleep(self._remaining_s)
                self._step(metadata_stream.TimePassed())

    @property
    def _remaining_s(self) -> float:
        """The time after which the core's deadline has certainly passed."""
        deadline_ms = self._stream.next_deadline_ms
        assert deadline_ms is not None, "no controller is followed"
        return max(0, deadline_ms + 1 - self._clock.monotonic_ms()) / 1000

    async def _follow(self, command: metadata_stream.OpenStream) -> None:
        """Read a stream until it ends or is closed."""
        request = pb.FollowMetadataRequest(
            cluster_id=self._cluster_id, observer_id=self._broker_id, from_offset=command.from_offset
        )
        channel = self._channel(command.address)
        try:
            await log_in(channel)
            with _cancelled_at_end(ControllerServiceStub(channel).FollowMetadata(request)) as call:
                while isinstance(self._stream.phase, metadata_stream.Reading):
                    await self._read(call)
        except grpc.aio.AioRpcError as rpc_error:
            raise_if_cancelled()
            error = await self._error_of(command.address, rpc_error)
            self._step(metadata_stream.StreamEnded(error))

    async def _read(self, call: _Stream) -> None:
        try:
            async with asyncio.timeout(self._remaining_s):
                response = await call.read()
        except TimeoutError:
            self._step(metadata_stream.TimePassed())
            return
        raise_if_cancelled()
        if isinstance(response, pb.FollowMetadataResponse):
            self._step(stream_response(response))
            if self._to_build is not None:
                command, self._to_build = self._to_build, None
                await self._build(command)
        else:
            self._step(metadata_stream.StreamEnded(None))

    async def _build(self, command: _Build) -> None:
        if isinstance(command, metadata_stream.BuildImage) or _size(command) > _MAX_BYTES_ON_LOOP:
            image = await asyncio.to_thread(built_image, self._image, command)
        else:
            image = built_image(self._image, command)
        if isinstance(command, metadata_stream.BuildImage):
            self.snapshots.add(sum(map(len, command.batches)))
        self._image = image
        self._tell(image_application.ImageReceived(image))
        self._step(metadata_stream.ImageBuilt(image.offset))

    def _step(self, event: metadata_stream.Event) -> None:
        for command in self._stream.step(event, self._clock.monotonic_ms()):
            self._perform(command)

    def _perform(self, command: metadata_stream.Command) -> None:
        match command:
            case metadata_stream.OpenStream():
                self._to_open = command
            case metadata_stream.CloseStream():
                pass  # Nothing is read any more, and the call is cancelled.
            case metadata_stream.BuildImage() | metadata_stream.AdvanceImage():
                self._to_build = command
            case metadata_stream.UseLeader():
                self._cache.controller_id = command.leader_id
            case metadata_stream.UseVoters():
                self._on_voters(command.voters)
            case metadata_stream.End():
                raise command.error
            case Report():
                logger.log(command.level, command.text, *command.arguments)
            case _:
                assert_never(command)


@contextlib.contextmanager
def _cancelled_at_end(call: _Stream) -> Iterator[_Stream]:
    try:
        yield call
    finally:
        call.cancel()


def stream_response(response: pb.FollowMetadataResponse) -> Responded:
    """Return the stream's event for a response."""
    voters = None
    if response.HasField("voters"):
        # A controller sends the address of the listener that this node follows.
        voters = {v.voter_id: (e.host, e.port) for v in response.voters.voters for e in v.endpoints[:1]}
    return Responded(
        BrokerId(response.leader_id),
        tuple(EntryPart(e.offset, e.epoch, e.batch, e.is_continued) for e in response.entries),
        voters,
        response.snapshot_begin,
        response.snapshot_end,
    )


def built_image(image: MetadataImage, command: _Build) -> MetadataImage:
    """Return the image of a snapshot, or the image after applying entries to ``image``."""
    if isinstance(command, metadata_stream.BuildImage):
        with building_lasting_objects():
            return image_from_batches(command.offset, command.epoch, command.batches)
    for entry in command.entries:
        builder = MetadataImageBuilder(image)
        for batch in entry.batches:
            builder.add(decode_batch(batch))
        image = builder.finish(entry.offset, entry.epoch)
    return image


def _size(command: metadata_stream.AdvanceImage) -> int:
    return sum(len(batch) for entry in command.entries for batch in entry.batches)


async def _unexplained(_: str, rpc_error: grpc.aio.AioRpcError) -> TidelogError:
    return error_from_rpc(rpc_error)
