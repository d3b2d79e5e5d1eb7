"""A fault: markers of a former coordinator that arrive in the next transaction of their producer.

1. A producer ends a transaction, in a version whose next transaction has the same epoch. The network delays the
   coordinator's markers.
2. The coordinator hands over its shard, or dies. The next coordinator writes the markers, and completes the
   transaction.
3. The producer begins its next transaction. When that is open in a partition, the delayed marker arrives there.

Other faults get there rarely: a transaction and a coordinator must end within the delay of one message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.cluster.node import NodeProcess
from sim.cluster.schedule import LEADER, Action
from sim.cluster.serving import Key
from sim.cluster.world import Handler, OnAnswer
from sim.transactions.clients import TransactionalProducer

from tidelog_node.transactions.markers import MarkersRequest, PartitionMarkers
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, Producer

if TYPE_CHECKING:
    from sim.transactions.world import TransactionWorld

_HAND_OVERS = ("bounce", "kill")
_DOWN_MS = 100
_STEP_US = 2_000
_MAX_DELAY_US = 2_000_000


@dataclass(slots=True)
class _Delay:
    """Delayed markers of one transaction; ``coordinator_epoch`` is that of the first of them."""

    shard: Key
    until_us: int
    coordinator_epoch: int | None = None
    markers: dict[Key, PartitionMarkers] = field(default_factory=dict)


class LateMarkers:
    """Delays the markers of planned transactions."""

    def __init__(self, transactions: TransactionWorld, dice: random.Random, act: Callable[[Action], None]) -> None:
        self._transactions = transactions
        self._world = transactions.world
        self._dice = dice
        self._act = act
        self._planned = 0
        self._delays: dict[Producer, _Delay] = {}
        self._receivers: dict[int, Handler] = {}
        for node in transactions.cluster.nodes.values():
            self._receivers[node.number] = node.write_markers
            node.write_markers = partial(self._receive, node)  # type: ignore[method-assign]

    def plan(self) -> None:
        """Delay the markers of one of the next transactions."""
        self._planned += 1

    def note_end(self, producer: TransactionalProducer) -> None:
        """A producer is about to end its transaction."""
        if self._planned and producer.version < EPOCH_BUMP_VERSION and producer.producer not in self._delays:
            self._planned -= 1
            until_us = self._world.now_us + _MAX_DELAY_US
            self._delays[producer.producer] = _Delay(producer.shard, until_us)
            self._deliver(producer.producer)

    def _receive(self, node: NodeProcess, request: MarkersRequest, answer: OnAnswer) -> None:
        """Delay the planned markers of a request, which then has no answer. Let all others take effect."""
        others = tuple(item for item in request.transactions if not self._delay(item))
        if len(others) == len(request.transactions):
            self._receivers[node.number](request, answer)
        elif others:
            self._receivers[node.number](replace(request, transactions=others), _ignore)

    def _delay(self, item: PartitionMarkers) -> bool:
        """Delay markers, if they are planned to be late. The coordinator of the first ones ends at once."""
        delay = self._delays.get(item.markers.producer)
        if delay is None or delay.coordinator_epoch not in (None, item.coordinator_epoch):
            return False
        if delay.coordinator_epoch is None:
            delay.coordinator_epoch = item.coordinator_epoch
            place = self._transactions.cluster.keys.index(delay.shard)
            action = Action(0, 0, self._dice.choice(_HAND_OVERS), LEADER, place, _DOWN_MS, amount=1)
            self._world.at(self._world.now_us, self._act, action)
        delay.markers.update((key, replace(item, partitions=(key,))) for key in item.partitions)
        return True

    def _deliver(self, producer: Producer) -> None:
        """Deliver the markers whose partitions are in the next transaction; look again soon."""
        delay = self._delays[producer]
        for key in [key for key, item in delay.markers.items() if self._is_overtaken(key, item)]:
            self._arrive(key, delay.markers.pop(key))
        if self._world.now_us < delay.until_us:
            self._world.at(self._world.now_us + _STEP_US, self._deliver, producer)
        else:
            del self._delays[producer]

    def _is_overtaken(self, key: Key, item: PartitionMarkers) -> bool:
        """Return whether a partition has the marker of a later coordinator, and a later transaction is open in it."""
        leader = self._transactions.leader_replica(key)
        return leader is not None and any(
            (entry.producer_id, entry.producer_epoch) == item.markers.producer
            and entry.coordinator_epoch > item.coordinator_epoch
            and entry.current_txn_first_offset >= 0
            for entry in leader.log.active_producers()
        )

    def _arrive(self, key: Key, item: PartitionMarkers) -> None:
        self._transactions.count("late marker")
        registration = self._transactions.cluster.checker.metadata.latest.partition(*key)
        assert registration is not None
        node = self._transactions.cluster.nodes[registration.leader]
        request = MarkersRequest(0, node.number, (item,))
        node.enter(node.life, self._receivers[node.number], request, _ignore)


def _ignore(_answer: Any) -> None:
    """The coordinator that waited for the answer is gone."""
