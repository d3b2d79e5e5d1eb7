"""The long polls of a consumer: one per node, interrupted at most once."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.consumer.core.events import Command, Fetch, FetchSpec, Interrupt
from tidelog.consumer.core.partition import PartitionState


class NodePolls:
    """The nodes with a long poll. ``Positions`` owns it and reports the end of each poll."""

    def __init__(self) -> None:
        self._busy: set[int] = set()
        self._interrupted: set[int] = set()

    def begin(self, node_id: int, wanted: Sequence[tuple[PartitionState, FetchSpec]], now_ms: float) -> list[Command]:
        """Start a poll for these partitions, or interrupt the pending one so that the next can include them."""
        if node_id in self._busy:
            return self.interrupt(node_id)
        self._busy.add(node_id)
        for state, _ in wanted:
            state.busy = True
            state.asked_node = node_id
            state.asked_ms = now_ms
        return [Fetch(node_id, [spec for _, spec in wanted])]

    def interrupt(self, node_id: int) -> list[Command]:
        """Interrupt the poll at a node, at most once."""
        if node_id in self._interrupted:
            return []
        self._interrupted.add(node_id)
        return [Interrupt(node_id)]

    def end(self, node_id: int) -> None:
        """Record that the poll at a node has ended."""
        self._busy.discard(node_id)
        self._interrupted.discard(node_id)

    def check_invariants(self) -> None:
        """Assert that only pending polls are interrupted."""
        assert self._interrupted <= self._busy
