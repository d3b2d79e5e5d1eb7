"""The shell of the connections that nodes hold to a simulated controller; the product decides.

A machine refuses for a process that is down or does not serve yet. Connections also break without a cause, and there
are nodes whose address the controllers cannot reach although they live: these are refused, too.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast

from random_numbers import mix

from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_quorum.controller import connections as core

if TYPE_CHECKING:
    from sim.cluster.controllers import ControllerProcess
    from sim.cluster.node import NodeProcess

_TIMES_FASTER = 10
"""Pauses and timeouts are so much shorter than the product's, as are all others here."""
_REFUSALS = 3
"""So many in a row must there have been where a broker is fenced for them."""
_CONNECT_MS = 1_000 // _TIMES_FASTER
_BREAKS_ONE_IN = 60
_HIDDEN_ONE_IN = 6
_ORIGIN = ip_address("10.0.0.1")


class Connections:
    """Of one life of a controller."""

    def __init__(self, controller: ControllerProcess) -> None:
        self._controller = controller
        self.core = core.BrokerConnections(controller.terms.controller)
        self._calls: dict[int, int] = {}
        self._count = 0
        self._heartbeats = 0
        self._refusals: dict[int, int] = {}

    def hold(self, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat is being answered: the node sees to it that it has a call open."""
        self._heartbeats += 1
        controller = self._controller
        broker = BrokerId(broker_id), BrokerEpoch(broker_epoch)
        if not self.core.has_call(*broker):
            self._count += 1
            self._hold(self._count, broker)
        if mix(controller.world.seed, controller.number, self._heartbeats, 3) % _BREAKS_ONE_IN == 0:
            controller.soon(self.broke, broker_id)

    def broke(self, broker_id: int) -> None:
        """The connections of a node are gone."""
        for call_id, holder in list(self._calls.items()):
            if holder == broker_id and self._calls.pop(call_id, None) is not None:
                self._step(core.CallBroken(call_id))

    def is_refused(self, broker_id: int) -> bool:
        """Return whether the node's machine has refused often enough in a row for the process to count as gone."""
        return self._refusals.get(broker_id, 0) >= _REFUSALS

    def _hold(self, call_id: int, broker: core.Broker) -> None:
        def ended(_not_controller: Any) -> None:
            if self._calls.pop(call_id, None) is not None:
                self._step(core.CallEnded(call_id))

        self._calls[call_id] = broker[0]
        self._step(core.CallOpened(call_id, broker, _ORIGIN))
        # Later: the controller is in the middle of a step.
        self._controller.soon(self._controller.terms.watch_leadership, ended)

    def _step(self, event: core.Event) -> None:
        for command in self.core.step(event, self._controller.monotonic_ms()):
            self._execute(command)
        self.core.check_invariants()

    def _execute(self, command: core.Command) -> None:
        match command:
            case core.FindListeners(broker):
                self._controller.soon(self._step, core.ListenersFound(broker, [9092]))
            case core.Connect(broker):
                self._connect(broker)
            case core.Pause(broker, pause_ms):
                self._controller.after(pause_ms / _TIMES_FASTER, self._step, core.PauseEnded(broker))
            case core.Report(refused):
                broker = refused.broker_id, refused.broker_epoch

                def take(answer: Any) -> None:
                    self._step(core.Reported(broker, answer is not False))

                self._controller.submit(("handle_broker_refused", refused), take)

    def _connect(self, broker: core.Broker) -> None:
        controller, world = self._controller, self._controller.world
        node = cast("NodeProcess", world.processes[broker[0]])
        take = self._once(broker)

        def arrive() -> None:
            is_hidden = mix(world.seed, broker[1], 4) % _HIDDEN_ONE_IN == 0
            is_accepted = node.is_up and node.is_serving and not is_hidden
            answer = core.Answer.ACCEPTED if is_accepted else core.Answer.REFUSED
            world.send(node.number, controller.number, controller.enter, controller.life, take, answer)

        controller.after(_CONNECT_MS, take, core.Answer.NONE)
        world.send(controller.number, node.number, arrive)

    def _once(self, broker: core.Broker) -> Callable[[core.Answer], None]:
        """Return what takes the first answer of one attempt."""
        is_answered = False

        def take(answer: core.Answer) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                refusals = self._refusals.get(broker[0], 0) + 1
                self._refusals[broker[0]] = refusals if answer is core.Answer.REFUSED else 0
                self._step(core.Connected(broker, [answer]))

        return take
