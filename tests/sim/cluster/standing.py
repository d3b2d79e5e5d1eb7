"""The lifecycle of a simulated node: the product's, whose commands become calls over the simulated network.

One of these lasts for one life of the process.
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
    Register,
    Registered,
    SendHeartbeat,
    Started,
    Stop,
    TimePassed,
    UseBrokerEpoch,
)
from tidelog_node.broker.report import Report
from tidelog_node.server.lifecycle import heartbeat_answer, heartbeat_request, registration_request

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess

CLUSTER = "simulated"
_CALL_MS = 600


class Standing:
    """The shell of one life's :class:`Lifecycle`."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.incarnation = b"%04d-%011d" % (node.number, node.life)
        self.lifecycle = Lifecycle(_timings(node.topology.heartbeat_ms))
        self.waits_no_more = False
        """True once this incarnation has requested a shutdown that begins at once."""
        self._timer_ms: int | None = None

    def begin(self) -> None:
        """Register."""
        self.node.soon(self.step, Started(self.previous_epoch()))

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
                self.node.following.note_registration(command.broker_epoch)
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

        self.waits_no_more = self.waits_no_more or (command.wants_shutdown and not command.shutdown_may_wait)
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


def _timings(heartbeat_ms: int) -> LifecycleTimings:
    return LifecycleTimings(
        heartbeat_ms,
        registration_retry_ms=30,
        heartbeat_retry_ms=20,
        shutdown_heartbeat_ms=20,
        longest_shutdown_heartbeat_ms=20,
        call_timeout_ms=_CALL_MS,
        shortest_attempt_ms=100,
        longest_attempt_ms=250,
    )
