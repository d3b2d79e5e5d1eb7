"""A simulated client that asks for the latest offsets again and again: they never go back (KIP-207)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.cluster.clients import ClientProcess
from sim.cluster.serving import Key
from sim.cluster.world import World

from tidelog.cluster import LATEST_TIMESTAMP
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import LeaderEpoch
from tidelog_node.handlers.requests.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

_EVERY_MS = 25
_CALL_MS = 200


class Watcher(ClientProcess):
    """Asks the leader of one partition after the other, as :meth:`Consumer.get_watermark_offsets` does."""

    def __init__(
        self, world: World, number: int, clock: tuple[int, int], checker: Checker, nodes: list[int], keys: list[Key]
    ) -> None:
        super().__init__(world, number, clock, checker, nodes)
        self._keys = keys
        self._turns = 0
        self.soon(self.refresh)
        self.after(_EVERY_MS, self._ask)

    def _ask(self) -> None:
        self.after(_EVERY_MS, self._ask)
        self._turns += 1
        key = self._keys[self._turns % len(self._keys)]
        leader = self.leader_of(key)
        if leader is None:
            self.refresh()
            return
        least = self.checker.clients.latest_offset(key)
        item = ListOffsetsPartition(key[1], LATEST_TIMESTAMP, LeaderEpoch(leader[1]))
        request = ListOffsetsRequest((ListOffsetsTopic(key[0], (item,)),))

        def take(answer: ListOffsetsResponse | TidelogError | None) -> None:
            if not isinstance(answer, ListOffsetsResponse):
                self.refresh()
                return
            [result] = answer.topics[0].partitions
            if result.error is not None:
                self.checker.count(f"latest offset: {result.error.code.name}")
                self.refresh()
            else:
                self.checker.clients.check_latest_offset(key, least, result.offset)

        self.call(self.world.processes[leader[0]], "read", ("list_offsets", request), take, _CALL_MS)
