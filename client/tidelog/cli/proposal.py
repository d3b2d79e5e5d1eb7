"""The assignment that ``tidelog partition reassign --generate`` proposes.

Greedy: each replica goes to the node that has fewest of the topic so far, and the one of the partition's nodes leads
that leads fewest; ties go to the node with least of all the topics together. So, without racks, no node has more than
one replica of a topic more than another, or leads more than two partitions more. With racks the replicas of a partition
are in as many of them as there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.cli.assignments import Assignment
from tidelog.errors import ErrorCode, error_for
from tidelog.message import TopicPartition


def propose(
    topics: Mapping[str, Sequence[int]], replication_factors: Mapping[str, int], racks: Mapping[int, str | None]
) -> Assignment:
    """Return replicas for the partitions of ``topics``, by index; ``racks`` has the nodes, each with its rack or None.

    Raises:
        TidelogError: INVALID_REPLICATION_FACTOR when a topic is to have more replicas than there are nodes.
    """
    proposed: Assignment = {}
    all_replicas: Counter[int] = Counter()
    all_leaders: Counter[int] = Counter()
    for topic, partitions in topics.items():
        factor = replication_factors[topic]
        if not 1 <= factor <= len(racks):
            text = f"topic {topic!r} is to have {factor} replicas on {len(racks)} nodes: {sorted(racks)}"
            raise error_for(ErrorCode.INVALID_REPLICATION_FACTOR, text)
        placer = _Placer(racks, all_replicas, all_leaders)
        for index in sorted(partitions):
            proposed[TopicPartition(topic, index)] = placer.place(factor)
    return proposed


class _Placer:
    """Places the partitions of one topic."""

    def __init__(self, racks: Mapping[int, str | None], all_replicas: Counter[int], all_leaders: Counter[int]) -> None:
        self._racks = racks
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        self._all_replicas = all_replicas
        self._all_leaders = all_leaders

    def place(self, factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition, the leader first."""
        chosen: list[int] = []
        used: Counter[str | None] = Counter()
        while len(chosen) < factor:
            broker = min((b for b in self._racks if b not in chosen), key=lambda b: self._replica_cost(b, used))
            chosen.append(broker)
            used[self._racks[broker]] += 1
        leader = min(chosen, key=self._leader_cost)
        self._leaders[leader] += 1
        self._all_leaders[leader] += 1
        self._replicas.update(chosen)
        self._all_replicas.update(chosen)
        return (leader, *(b for b in chosen if b != leader))

    def _leader_cost(self, broker: int) -> tuple[int, ...]:
        return (self._leaders[broker], self._all_leaders[broker], broker)

    def _replica_cost(self, broker: int, used: Mapping[str | None, int]) -> tuple[int, ...]:
        rack = self._racks[broker]
        return (
            0 if rack is None else used[rack],
            self._replicas[broker],
            self._leaders[broker],
            self._all_replicas[broker],
            broker,
        )
