"""The connections that nodes hold to the leading controller, and what it makes of one that breaks.

As ``BrokerConnections``: it knocks where the node should listen, and fences it when it is refused several times in a
row. A machine refuses for a process that is down or does not serve yet. Connections also break without a cause, and
there are nodes whose address the controllers cannot reach although they live: these are refused, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from sim.cluster.world import mix

from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_quorum.controller import BrokerRefused

if TYPE_CHECKING:
    from sim.cluster.controllers import ControllerProcess
    from sim.cluster.node import NodeProcess

_KNOCK_EVERY_MS = 3
_KNOCKS = 12
_REFUSALS = 3
_ROUNDS = 3
_BREAKS_ONE_IN = 60
_HIDDEN_ONE_IN = 6


class Connections:
    """Of one life of a controller."""

    def __init__(self, controller: ControllerProcess) -> None:
        self._controller = controller
        self._held: dict[int, int] = {}
        self._heartbeats = 0

    def hold(self, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat is being answered, so there is a connection."""
        self._held[broker_id] = broker_epoch
        self._heartbeats += 1
        controller = self._controller
        if mix(controller.world.seed, controller.number, self._heartbeats, 3) % _BREAKS_ONE_IN == 0:
            controller.soon(self.broke, broker_id)

    def broke(self, broker_id: int) -> None:
        """The connection of a node is gone."""
        broker_epoch = self._held.pop(broker_id, None)
        if broker_epoch is not None:
            self._begin(broker_id, broker_epoch, _ROUNDS)

    def _begin(self, broker_id: int, broker_epoch: int, rounds: int) -> None:
        now_ms = self._controller.monotonic_ms()
        refused = BrokerRefused(BrokerId(broker_id), BrokerEpoch(broker_epoch), now_ms)
        if rounds and self._controller.serves:
            self._knock(refused, rounds, _KNOCKS, 0)

    def _knock(self, refused: BrokerRefused, rounds: int, knocks: int, refusals: int) -> None:
        controller, world = self._controller, self._controller.world
        node = cast("NodeProcess", world.processes[refused.broker_id])

        def at_the_door() -> None:
            is_hidden = mix(world.seed, refused.broker_epoch, 4) % _HIDDEN_ONE_IN == 0
            is_accepted = node.is_up and node.is_serving and not is_hidden
            arguments = (refused, rounds, knocks - 1, 0 if is_accepted else refusals + 1)
            world.send(node.number, controller.number, controller.enter, controller.life, self._take, *arguments)

        world.send(controller.number, node.number, at_the_door)

    def _take(self, refused: BrokerRefused, rounds: int, knocks: int, refusals: int) -> None:
        if refusals == _REFUSALS:
            self._finish(refused, rounds)
        elif knocks:
            self._controller.after(_KNOCK_EVERY_MS, self._knock, refused, rounds, knocks, refusals)

    def _finish(self, refused: BrokerRefused, rounds: int) -> None:
        if self._held.get(refused.broker_id) == refused.broker_epoch:
            return

        def take(is_settled: Any) -> None:
            if is_settled is False:
                self._begin(refused.broker_id, refused.broker_epoch, rounds - 1)

        self._controller.submit(("handle_broker_refused", refused), take)
