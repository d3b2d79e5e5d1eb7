"""Follows the committed metadata log from any controller and applies it to this node, one image after the other.

The partitions take an image over before it is published to the handlers, and only an image with this process's own
registration is applied: an older one may still say that the node leads partitions that it led in an earlier life, a
later one speaks of another process that has taken the node's id. This process then stops, for what the node leads
is led there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

import grpc.aio

from tidelog.config.endpoints import format_address
from tidelog.errors import ErrorCode, error_for
from tidelog.ids import BrokerEpoch, BrokerId
from tidelog.transport import error_from_rpc
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_node.partitions import MetadataCache, PartitionRegistry
from tidelog_quorum.metadata import MetadataImage, MetadataRecord, delta_between, from_message

logger = logging.getLogger(__name__)

_SILENCE_S = 2.0
_PAUSE_S = 0.05
_MAX_PAUSE_S = 0.5
_NOT_REGISTERED = BrokerEpoch(-1)


class MetadataFollower:
    """One per node. ``run`` is its task; ``applied_offset`` is what a heartbeat reports."""

    def __init__(
        self,
        broker_id: BrokerId,
        incarnation_id: bytes,
        cluster_id: str,
        voters: Mapping[int, tuple[str, int]],
        channel: Callable[[str], grpc.aio.Channel],
        registry: PartitionRegistry,
        cache: MetadataCache,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        self._cluster_id = cluster_id
        self._addresses = [format_address(host, port) for _, (host, port) in sorted(voters.items())]
        # Nodes begin with different controllers, so that their streams are spread.
        self._next = broker_id % len(self._addresses)
        self._channel = channel
        self._registry = registry
        self._cache = cache
        self._broker_epoch = broker_epoch
        self._image = MetadataImage()
        self._applied = MetadataImage()
        self._snapshot: list[MetadataRecord] | None = None
        self._leaderless_since: float | None = None
        self._failures = 0
        self._applying = asyncio.Lock()
        self.is_current = asyncio.Event()
        """Set when the first image with this node's registration is applied."""

    @property
    def applied_offset(self) -> int:
        """The metadata offset that this node's partitions have reached; -1 before the first."""
        return self._applied.offset

    async def run(self) -> None:
        """Follow until cancelled; a controller that fails or is silent for two seconds is left for the next.

        Raises:
            TidelogError: INCONSISTENT_CLUSTER_ID, or what :meth:`apply_pending` raises.
        """
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
            await self._turn_from(address, reason)

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
            await self._registry.apply(image, delta_between(self._applied, image))
            self._applied = image
            if not self.is_current.is_set():
                await self._registry.discard_unknown()
            self._cache.publish(image)
            self.is_current.set()

    def _is_registered(self, image: MetadataImage) -> bool:
        broker, epoch = image.brokers.get(self._broker_id), self._broker_epoch()
        if epoch == _NOT_REGISTERED or broker is None or broker.broker_epoch < epoch:
            return False
        if broker.incarnation_id != self._incarnation_id:
            text = f"another process has registered as node {self._broker_id}, at {broker.endpoint}: this one must stop"
            raise error_for(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
        return True

    async def _follow(self, address: str) -> None:
        request = pb.FollowMetadataRequest(
            cluster_id=self._cluster_id, observer_id=self._broker_id, from_offset=self._image.offset + 1
        )
        self._snapshot = None
        self._leaderless_since = None
        call = ControllerServiceStub(self._channel(address)).FollowMetadata(request)
        try:
            while True:
                async with asyncio.timeout(_SILENCE_S):
                    response = await call.read()
                if not isinstance(response, pb.FollowMetadataResponse):
                    return
                self._failures = 0
                self._take(response)
                await self.apply_pending()
        finally:
            call.cancel()

    def _take(self, response: pb.FollowMetadataResponse) -> None:
        self._note_leader(response.leader_id)
        if response.snapshot_begin:
            self._snapshot = []
        for entry in response.entries:
            records = [from_message(r) for r in entry.records]
            if self._snapshot is not None:
                self._snapshot += records
            elif entry.offset > self._image.offset:
                self._image = self._image.apply(entry.offset, entry.epoch, records)
        if response.snapshot_end and self._snapshot is not None:
            records, self._snapshot = self._snapshot, None
            last = response.entries[-1]
            if last.offset > self._image.offset:
                self._image = MetadataImage.from_records(last.offset, last.epoch, records)

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
