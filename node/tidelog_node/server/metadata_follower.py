"""Follows the committed metadata log from any controller and applies it to this node, one image after the other.

One task reads: it turns what comes into images, the large in a thread. Another one applies the newest image, so
that many entries in a row become one step. The partitions take an image over before it is published to the handlers,
and only an image with this process's own registration is applied: an older one may still say that the node leads
partitions that it led in an earlier life, a later one speaks of another process that has taken the node's id. This
process then stops, for what the node leads is led there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.lasting_objects import LastingObjects, building_lasting_objects
from tidelog_foundation.transport import error_from_rpc, raise_if_cancelled
from tidelog_node.partitions import MetadataCache, PartitionRegistry
from tidelog_node.server.controller_client import configured_addresses, voter_addresses
from tidelog_quorum.metadata import (
    MetadataDelta,
    MetadataImage,
    MetadataImageBuilder,
    decode_batch,
    delta_between,
    image_from_batches,
)

logger = logging.getLogger(__name__)

_SILENCE_S = 2.5
_PAUSE_S = 0.05
_MAX_PAUSE_S = 0.5
_NOT_REGISTERED = BrokerEpoch(-1)
_MAX_BYTES_ON_LOOP = 8 * 1024
"""Some eighty partitions: decoded and applied in less than a millisecond."""

_MANY_NEW = 1_000
_OBJECTS_PER_PARTITION = 30
"""Of one that this node holds, for the collector of cycles."""

Voters = Mapping[int, tuple[str, int]]


@dataclass(slots=True)
class _Entry:
    """An entry of the log, or a snapshot, of which the last part may still be to come."""

    offset: int
    epoch: int
    batches: list[bytes]


class MetadataFollower:
    """One per node. ``run`` is its task."""

    def __init__(
        self,
        broker_id: BrokerId,
        incarnation_id: bytes,
        cluster_id: str,
        voters: Voters,
        channel: Callable[[str], grpc.aio.Channel],
        registry: PartitionRegistry,
        cache: MetadataCache,
        broker_epoch: Callable[[], BrokerEpoch],
        on_voters: Callable[[Voters], None],
        before_image: Callable[[MetadataImage], None],
        bootstrap: Sequence[tuple[str, int]] = (),
        on_fenced: Callable[[], None] = lambda: None,
        on_applied: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``on_fenced`` is called whenever this process stood unfenced in the metadata and stands fenced now.

        ``on_applied`` is told the offset that the partitions have reached.
        """
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._cluster_id = cluster_id
        self._voters = voters
        self._configured = configured_addresses(voters, bootstrap)
        self._addresses = self._configured
        # Nodes begin with different controllers, so that their streams are spread.
        self._next = broker_id % len(self._addresses)
        self._channel = channel
        self._registry = registry
        self._cache = cache
        self._broker_epoch = broker_epoch
        self._on_voters = on_voters
        self._before_image = before_image
        self._on_fenced = on_fenced
        self._on_applied = on_applied
        self._image = MetadataImage()
        self._applied = MetadataImage()
        self._snapshot: list[bytes] | None = None
        self._parts: list[bytes] = []
        self._leaderless_since: float | None = None
        self._failures = 0
        self._received = asyncio.Event()
        self._applying = asyncio.Lock()
        self._lasting = LastingObjects()
        self.is_current = asyncio.Event()
        """Set when the first image with this node's registration is applied."""

    @property
    def applied_offset(self) -> int:
        """The metadata offset that this node's partitions have reached; -1 before the first."""
        return self._applied.offset

    async def run(self) -> None:
        """Follow until cancelled; a controller that fails or is silent for two seconds is left for the next.

        Raises:
            TidelogError: INCONSISTENT_CLUSTER_ID, or what :meth:`apply_pending` raises; in a group.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apply_received(), name="apply-metadata")
            await self._follow_any()

    def note_registration(self) -> None:
        """There is a broker epoch: its record may have come before the answer that told it."""
        self._received.set()

    async def apply_pending(self) -> None:
        """Apply what has been received, once this node's registration is in it.

        Raises:
            TidelogError: DUPLICATE_BROKER_REGISTRATION, another process has registered with this node's id.
            ConfigError: two log directories have the same partition, and nothing says which one is right.
        """
        async with self._applying:
            image = self._image
            if image is self._applied or not self._is_registered(image):
                return
            # Followers look addresses up as soon as they start.
            self._cache.publish_brokers(image)
            self._before_image(image)
            delta = await self._delta_to(image)
            new = sum(change.before is None for change in delta.changed_partitions)
            with building_lasting_objects() if new >= _MANY_NEW else contextlib.nullcontext():
                await self._registry.apply(image, delta)
            self._lasting.add(_OBJECTS_PER_PARTITION * new)
            was_unfenced, self._applied = self._is_unfenced(self._applied), image
            self._on_applied(image.offset)
            if was_unfenced and not self._is_unfenced(image):
                self._on_fenced()
            if not self.is_current.is_set():
                await self._registry.discard_unknown()
            self._cache.publish(image)
            self.is_current.set()

    async def _delta_to(self, image: MetadataImage) -> MetadataDelta:
        if image.topics is self._applied.topics:
            return delta_between(self._applied, image)
        return await asyncio.to_thread(delta_between, self._applied, image)

    async def _apply_received(self) -> None:
        while True:
            await self._received.wait()
            self._received.clear()
            await self.apply_pending()

    def _is_unfenced(self, image: MetadataImage) -> bool:
        broker = image.brokers.get(self._broker_id)
        return broker is not None and not broker.fenced

    def _is_registered(self, image: MetadataImage) -> bool:
        broker, epoch = image.brokers.get(self._broker_id), self._broker_epoch()
        if epoch == _NOT_REGISTERED or broker is None or broker.broker_epoch < epoch:
            return False
        if broker.incarnation_id != self._incarnation_id:
            text = f"another process has registered as node {self._broker_id}, at {broker.endpoint}: this one must stop"
            raise error_for(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
        return True

    async def _follow_any(self) -> None:
        while True:
            address = self._addresses[self._next % len(self._addresses)]
            reason = "the stream ended"
            try:
                await self._follow(address)
            except grpc.aio.AioRpcError as rpc_error:
                error = error_from_rpc(rpc_error)
                if error.code is ErrorCode.INCONSISTENT_CLUSTER_ID:
                    raise error from rpc_error
                reason = str(error)
            except TimeoutError:
                reason = f"nothing of use for {_SILENCE_S} s"
            raise_if_cancelled()
            await self._turn_from(address, reason)

    async def _follow(self, address: str) -> None:
        request = pb.FollowMetadataRequest(
            cluster_id=self._cluster_id, observer_id=self._broker_id, from_offset=self._image.offset + 1
        )
        self._snapshot = None
        self._parts = []
        self._leaderless_since = None
        call = ControllerServiceStub(self._channel(address)).FollowMetadata(request)
        try:
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    response = await call.read()
                if not isinstance(response, pb.FollowMetadataResponse):
                    return
                self._failures = 0
                await self._take(response)
        finally:
            call.cancel()

    async def _take(self, response: pb.FollowMetadataResponse) -> None:
        self._note_leader(response.leader_id)
        if response.HasField("voters"):
            self._take_voters({v.voter_id: (v.endpoint.host, v.endpoint.port) for v in response.voters.voters})
        if response.snapshot_begin:
            self._snapshot = []
        if self._snapshot is not None:
            self._snapshot += [entry.batch for entry in response.entries]
            if response.snapshot_end:
                await self._take_snapshot(response.entries[-1].offset, response.entries[-1].epoch)
        elif entries := self._whole_entries(response.entries):
            await self._take_entries(entries)

    async def _take_snapshot(self, offset: int, epoch: int) -> None:
        batches, self._snapshot = self._snapshot, None
        if offset > self._image.offset:
            self._set_image(await asyncio.to_thread(_build_image, offset, epoch, batches or []))

    def _whole_entries(self, messages: Sequence[pb.MetadataEntry]) -> list[_Entry]:
        """Return the new entries of which the last part is here."""
        entries = []
        for message in messages:
            self._parts.append(message.batch)
            if not message.is_continued:
                parts, self._parts = self._parts, []
                if message.offset > self._image.offset:
                    entries.append(_Entry(message.offset, message.epoch, parts))
        return entries

    async def _take_entries(self, entries: Sequence[_Entry]) -> None:
        size = sum(len(batch) for entry in entries for batch in entry.batches)
        if size <= _MAX_BYTES_ON_LOOP:
            self._set_image(_advance(self._image, entries))
        else:
            self._set_image(await asyncio.to_thread(_advance, self._image, entries))

    def _set_image(self, image: MetadataImage) -> None:
        self._image = image
        self._received.set()

    def _take_voters(self, voters: Voters) -> None:
        """Follow who the controllers are; those of the configuration stay the last resort."""
        if not voters or voters == self._voters:
            return
        current = voter_addresses(voters)
        addresses = current + [a for a in self._configured if a not in current]
        self._voters = voters
        followed = self._addresses[self._next % len(self._addresses)]
        logger.info("The controllers are now %s", ", ".join(current))
        self._addresses = addresses
        self._next = addresses.index(followed) if followed in addresses else 0
        self._on_voters(voters)

    async def _turn_from(self, address: str, reason: str) -> None:
        """Go on to the next controller; of failures in a row only the first is worth a line."""
        level = logging.DEBUG if self._failures else logging.INFO
        logger.log(level, "Following the metadata from %s ended, trying the next controller: %s", address, reason)
        self._next += 1
        self._failures += 1
        await asyncio.sleep(min(_PAUSE_S * self._failures, _MAX_PAUSE_S))

    def _note_leader(self, leader_id: int) -> None:
        """A controller that knows no leader for long may be cut off from the quorum: its log stands still."""
        self._cache.controller_id = BrokerId(leader_id)
        now = asyncio.get_running_loop().time()
        if leader_id >= 0:
            self._leaderless_since = None
        elif self._leaderless_since is None:
            self._leaderless_since = now
        elif now - self._leaderless_since > _SILENCE_S:
            raise TimeoutError


def _build_image(offset: int, epoch: int, batches: Sequence[bytes]) -> MetadataImage:
    with building_lasting_objects():
        return image_from_batches(offset, epoch, batches)


def _advance(image: MetadataImage, entries: Sequence[_Entry]) -> MetadataImage:
    for entry in entries:
        builder = MetadataImageBuilder(image)
        for batch in entry.batches:
            builder.add(decode_batch(batch))
        image = builder.finish(entry.offset, entry.epoch)
    return image
