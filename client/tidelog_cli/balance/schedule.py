"""The order of a plan's moves: which can begin while others are in progress. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tidelog.admin import PartitionReassignment
from tidelog.message import TopicPartition
from tidelog_cli.balance.planner import Move

MAX_BATCH = 500
"""Partitions of one AlterPartitionReassignments request."""


def next_moves(
    pending: Sequence[Move], ongoing: Mapping[TopicPartition, PartitionReassignment], moves_per_node: int
) -> list[Move]:
    """Return the moves to begin now, in order: each node has at most ``moves_per_node`` in progress.

    A move counts for the nodes that get or lose a replica. One that copies nothing can always begin.
    """
    busy: Counter[int] = Counter()
    for reassignment in ongoing.values():
        busy.update(_nodes(reassignment.adding_replicas, reassignment.removing_replicas))
    chosen: list[Move] = []
    for move in pending:
        nodes = _nodes(move.adding, move.removing)
        if move.key not in ongoing and all(busy[node] < moves_per_node for node in nodes):
            busy.update(nodes)
            chosen.append(move)
            if len(chosen) == MAX_BATCH:
                break
    return chosen


def _nodes(adding: Iterable[int], removing: Iterable[int]) -> set[int]:
    return {*adding, *removing}
