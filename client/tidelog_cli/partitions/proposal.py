"""The assignment that ``tidelog partition reassign --generate`` proposes.

Each replica goes to the node with the fewest replicas of the topic so far; of a partition's nodes, the one that leads
the fewest partitions leads it. Ties go to the node with the fewest over all topics. Then leaderships move along chains
of replicas until none can move to a node that leads at least two fewer. So, without racks, no node has more than one
replica of a topic more than another, or leads more than one partition more: if each replica led an equal share of its
partition, the nodes would differ by less than one, and whole numbers on either side of such shares always exist. With
racks, the replicas of a partition are in as many of them as there are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from tidelog.message import TopicPartition
from tidelog_cli.partitions.assignments import Assignment
from tidelog_foundation.errors import ErrorCode, error_for


def propose(
    topics: Mapping[str, Sequence[int]], replication_factors: Mapping[str, int], racks: Mapping[int, str | None]
) -> Assignment:
    """Return replicas for the partitions of ``topics``, by index; ``racks`` maps each node to its rack or None.

    Raises:
        TidelogError: INVALID_REPLICATION_FACTOR, a topic would have more replicas than there are nodes.
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
        placed = [placer.place(factor) for _ in partitions]
        for index, replicas in zip(sorted(partitions), _with_even_leaders(placed, list(racks)), strict=True):
            proposed[TopicPartition(topic, index)] = replicas
            all_leaders[replicas[0]] += 1
    return proposed


def _with_even_leaders(placed: Sequence[tuple[int, ...]], brokers: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the same replicas with leaders spread as evenly as these replicas allow."""
    replicas = list(placed)
    leads = Counter(chosen[0] for chosen in replicas)
    unable: set[int] = set()
    while len(unable) < len(brokers):
        start = max((b for b in brokers if b not in unable), key=lambda b: leads[b])
        chain = _chain(replicas, leads, start)
        if not chain:
            unable.add(start)
            continue
        for index, successor in chain:
            replicas[index] = (successor, *(b for b in replicas[index] if b != successor))
        leads[start] -= 1
        leads[chain[0][1]] += 1
        unable.clear()
    return replicas


def _chain(replicas: Sequence[tuple[int, ...]], leads: Mapping[int, int], start: int) -> list[tuple[int, int]]:
    """Return (partition, new leader), last step first, that move a leadership from ``start`` to a node with fewer."""
    led: dict[int, list[int]] = {}
    for index, chosen in enumerate(replicas):
        led.setdefault(chosen[0], []).append(index)
    came_by: dict[int, tuple[int, int]] = {}
    queue = deque([start])
    while queue:
        broker = queue.popleft()
        if leads[start] - leads[broker] >= 2:
            return _steps(came_by, start, broker)
        for index in led.get(broker, ()):
            for successor in replicas[index][1:]:
                if successor != start and successor not in came_by:
                    came_by[successor] = (broker, index)
                    queue.append(successor)
    return []


def _steps(came_by: Mapping[int, tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    steps: list[tuple[int, int]] = []
    while end != start:
        before, index = came_by[end]
        steps.append((index, end))
        end = before
    return steps


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
