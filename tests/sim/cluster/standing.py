"""A simulated node's calls to the controllers, and the metadata that it follows.

The lifecycle is the product's, and so are its messages; here its commands become calls over the simulated network. The
node follows the log from any controller and applies the newest image, but none in which its own registration is not
yet. One of these lasts for one life of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from raft_properties import require

from tidelog_foundation.config.endpoints import GRPC, NamedListener
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch
from tidelog_node.broker.lifecycle import (
    CallFailed,
    Command,
    End,
    Event,
    HoldConnection,
    Lifecycle,
    LifecycleTimings,
    MetadataApplied,
    Register,
    Registered,
    SendHeartbeat,
    ServingStarted,
    Started,
    Stop,
    TimePassed,
    UseBrokerEpoch,
)
from tidelog_node.broker.report import Report
from tidelog_node.server.lifecycle import heartbeat_answer, heartbeat_request, registration_request
from tidelog_quorum.metadata import BrokerRegistration, MetadataImage

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess

CLUSTER = "simulated"
_PAUSE_MS = 20
_CALL_MS = 600
_OPENING_MS = 2


class Standing:
    """The shell of one life's :class:`Lifecycle`, and what follows the metadata."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.incarnation = b"%04d-%011d" % (node.number, node.life)
        self.lifecycle = Lifecycle(_timings(node.topology.heartbeat_ms))
        self._timer_ms: int | None = None
        self._received = MetadataImage()
        self._is_applying = False
        self._is_current = False

    def begin(self) -> None:
        """Register, and follow the metadata."""
        node = self.node
        node.soon(self.step, Started(self.previous_epoch()))
        node.soon(self._follow, node.number % len(node.controllers), 1)

    def previous_epoch(self) -> BrokerEpoch:
        """Return the broker epoch of the last clean stop, -1 after an unclean one."""
        return self.node.replicas.previous_epoch

    def step(self, event: Event) -> None:
        """Tell the lifecycle of something, and do what it asks for."""
        lifecycle, now_ms = self.lifecycle, self.node.monotonic_ms()
        commands = lifecycle.step(event, now_ms)
        if self.node.checks_invariants:
            lifecycle.check_invariants()
        for command in commands:
            self._perform(command)
        deadline_ms = lifecycle.next_deadline_ms
        if deadline_ms is not None and deadline_ms != self._timer_ms:
            self._timer_ms = deadline_ms
            node = self.node
            node.world.at(node.due_us(deadline_ms), node.enter, node.life, self._wake, deadline_ms)

    def _wake(self, deadline_ms: int) -> None:
        if self._timer_ms == deadline_ms:
            self._timer_ms = None
            self.step(TimePassed())

    def _perform(self, command: Command) -> None:
        match command:
            case Register():
                self._register(command)
            case SendHeartbeat():
                self._send_heartbeat(command)
            case UseBrokerEpoch():
                self._apply_soon()
            case Stop():
                self._stop(command)
            case End():
                raise command.error
            case HoldConnection() | Report():
                pass
            case _:
                assert_never(command)

    def _register(self, command: Register) -> None:
        node = self.node
        request = registration_request(
            node.identity,
            CLUSTER,
            self.incarnation,
            [NamedListener(GRPC, f"node-{node.number}", 9092, GRPC)],
            node.rack,
            [node.replicas.directory.id],
            self.previous_epoch(),
        )

        def take(answer: Any) -> None:
            is_error = isinstance(answer, TidelogError)
            self.step(CallFailed(answer) if is_error else Registered(BrokerEpoch(answer.broker_epoch)))

        node.calls.ask("handle_register_broker", request, take, command.timeout_ms)

    def _send_heartbeat(self, command: SendHeartbeat) -> None:
        def take(answer: Any) -> None:
            self.step(CallFailed(answer) if isinstance(answer, TidelogError) else heartbeat_answer(answer))

        request = heartbeat_request(self.node.identity, command, ())
        timeouts_ms = command.timeout_ms, command.attempt_timeout_ms
        self.node.calls.ask("handle_broker_heartbeat", request, take, *timeouts_ms)

    def _stop(self, command: Stop) -> None:
        led = [
            f"{t.name}-{i}"
            for t, i, p in self.node.checker.metadata.latest.partitions()
            if p.leader == self.node.number
        ]
        require(not (command.is_handed_over and led), "HandedOver", f"{self.node.number} stops and leads {led}")
        self.node.stop_cleanly()

    def is_registered(self, broker: BrokerRegistration | None) -> bool:
        """Whether an image is of this life: with its own registration."""
        epoch = self.lifecycle.broker_epoch
        if epoch < 0 or broker is None or broker.broker_epoch < epoch:
            return False
        assert broker.incarnation_id == self.incarnation, "another process has this node's id"
        return True

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
        self.step(MetadataApplied(image.offset))
        if not self._is_current:
            self._is_current = True
            replicas.discard_unknown()
            self.node.after(_OPENING_MS + self.node.topology.apply_ms, self.step, ServingStarted())


def _timings(heartbeat_ms: int) -> LifecycleTimings:
    return LifecycleTimings(
        heartbeat_ms,
        registration_retry_ms=30,
        heartbeat_retry_ms=20,
        shutdown_heartbeat_ms=20,
        call_timeout_ms=_CALL_MS,
        shortest_attempt_ms=100,
        longest_attempt_ms=250,
    )
