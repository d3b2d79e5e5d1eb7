"""A simulated node's standing with the controllers, and the metadata that it follows.

As ``BrokerLifecycle`` and ``MetadataFollower``: it registers, sends heartbeats with the offset that is applied, asks
for controlled shutdown; it follows the log from any controller and applies the newest image, but none in which its own
registration is not yet. One of these lasts for one life of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import BrokerEpoch
from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.metadata import BrokerRegistration, MetadataImage
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess

CLUSTER = "simulated"
_PAUSE_MS = 20
_CALL_MS = 600
_FEATURES = [
    common_pb2.FeatureRange(name=f.name, min_level=f.min_level, max_level=f.max_level)
    for f in SUPPORTED_FEATURES.values()
]
_TRY_TO_REGISTER = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
_REGISTER_AGAIN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class Standing:
    """``broker_epoch`` is -1 before the first registration; ``wants_shut_down`` ends in ``node.stop_cleanly``."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.broker_epoch = BrokerEpoch(-1)
        self.wants_shut_down = False
        self.incarnation = b"%04d-%011d" % (node.number, node.life)
        self._received = MetadataImage()
        self._is_applying = False
        self._heartbeats = 0

    def begin(self) -> None:
        """Register, and follow the metadata."""
        node = self.node
        node.soon(self.register)
        node.soon(self._follow, node.number % len(node.controllers), 1)

    def register(self) -> None:
        """Introduce this life of the node."""
        node = self.node
        request = pb.RegisterBrokerRequest(
            broker_id=node.number,
            cluster_id=CLUSTER,
            incarnation_id=self.incarnation,
            endpoint=common_pb2.Endpoint(host=f"node-{node.number}", port=9092),
            rack=node.rack,
            log_dirs=[node.replicas.directory.id],
            previous_broker_epoch=self.previous_epoch(),
            features=_FEATURES,
        )
        node.calls.ask("handle_register_broker", request, self._registered, _CALL_MS)

    def previous_epoch(self) -> int:
        """The broker epoch of the last clean stop, -1 after an unclean one."""
        return self.node.replicas.previous_epoch

    def heartbeat_now(self) -> None:
        """Send one at once, and the others after it."""
        self._heartbeats += 1
        self._heartbeat(self._heartbeats)

    def is_registered(self, broker: BrokerRegistration | None) -> bool:
        """Whether an image is of this life: with its own registration."""
        if self.broker_epoch < 0 or broker is None or broker.broker_epoch < self.broker_epoch:
            return False
        assert broker.incarnation_id == self.incarnation, "another process has this node's id"
        return True

    def _registered(self, response: Any) -> None:
        if isinstance(response, TidelogError):
            assert response.code in _TRY_TO_REGISTER, response
            self.node.after(30, self.register)
            return
        self.broker_epoch = BrokerEpoch(response.broker_epoch)
        self._apply_soon()
        self.heartbeat_now()

    def _heartbeat(self, number: int) -> None:
        """Send one; a later one that was asked for in a hurry ends the earlier chain."""
        if number != self._heartbeats:
            return
        node = self.node
        request = pb.BrokerHeartbeatRequest(
            broker_id=node.number,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=node.replicas.applied.offset if node.is_serving else -1,
            want_shut_down=self.wants_shut_down,
        )
        node.calls.ask("handle_broker_heartbeat", request, lambda r: self._answered(number, r), _CALL_MS)

    def _answered(self, number: int, response: Any) -> None:
        node, interval_ms = self.node, self.node.topology.heartbeat_ms
        if isinstance(response, TidelogError):
            if self.wants_shut_down:
                node.stop_cleanly()
            elif response.code in _REGISTER_AGAIN:
                self.register()
            else:
                node.after(min(40, interval_ms), self._heartbeat, number)
        elif response.should_shut_down and self.wants_shut_down:
            node.stop_cleanly()
        else:
            is_urgent = response.is_fenced or self.wants_shut_down
            node.after(min(20, interval_ms) if is_urgent else interval_ms, self._heartbeat, number)

    def _follow(self, controller: int, failures: int) -> None:
        node = self.node
        to = node.world.processes[node.controllers[controller]]

        def take(committed: int | None) -> None:
            if committed is None:
                following = (controller + 1) % len(node.controllers)
                node.after(min(_PAUSE_MS * failures, 100), self._follow, following, failures + 1)
                return
            if committed > self._received.offset:
                self._received = node.checker.metadata.images[committed]
                self._apply_soon()
            self._follow(controller, 1)

        node.call(to, "follow_metadata", self._received.offset + 1, take, _CALL_MS)

    def _apply_soon(self) -> None:
        if not self._is_applying:
            self._is_applying = True
            self.node.after(self.node.topology.apply_ms, self._apply)

    def _apply(self) -> None:
        self._is_applying = False
        image, replicas = self._received, self.node.replicas
        if image is replicas.applied or not self.is_registered(image.brokers.get(self.node.identity)):
            return
        replicas.apply(image)
        if not self.node.is_serving:
            replicas.discard_unknown()
            self.node.is_serving = True
            self.heartbeat_now()
