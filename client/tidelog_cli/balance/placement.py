"""Replicas of all partitions while a plan is made: the nodes' loads, and the effect of a change on each goal. Pure.

A :data:`Score` has one number per goal, the hard ones first. Zero is perfect, and less is better. Partitions have their
rank in the order of their names as number. A change of a partition is a tuple of its new replicas, of which the first
is the preferred leader.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from tidelog_cli.balance.goals import Goal, Policy, Range, fair_ranges
from tidelog_cli.balance.snapshot import ClusterSnapshot, NodeState, Partition

Score: TypeAlias = tuple[int, ...]
"""Replicas on leaving nodes, missing racks, bytes over capacity, then the excess of each soft goal."""

Loads: TypeAlias = dict[int, list[int]]
"""The sums that changes add to the values of nodes, by node and goal."""

Move: TypeAlias = tuple[int, int, int]
"""A partition, and the nodes from which and to which one of its replicas moves."""

Changes: TypeAlias = Mapping[int, tuple[int, ...]]
"""New replicas by the partition's number."""

EVACUATION, RACKS, CAPACITY = range(3)
HARD_GOALS = 3
"""The number of hard goals; soft ones follow in a score."""

_PERCENT = 100


class Placement:
    """The replicas of a snapshot's partitions, with changes; :meth:`apply` is the only method that mutates."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy) -> None:
        self.keys = sorted(snapshot.partitions)
        self.partitions = [snapshot.partitions[number] for number in self.keys]
        self.policy = policy
        self.replicas = [partition.replicas for partition in self.partitions]
        self.on_node: dict[int, set[int]] = {node: set() for node in snapshot.nodes}
        self.values: list[dict[int, int]] = [dict.fromkeys(snapshot.nodes, 0) for _ in Goal]
        self.versions = dict.fromkeys(snapshot.nodes, 0)
        """A number per node, which rises when a partition with a replica there changes."""
        self.ages = dict.fromkeys(snapshot.nodes, 0)
        """A number per node, which rises when its values change, or the racks of a partition there."""
        self.copied_bytes = 0
        self._movable: dict[int, tuple[int, list[int]]] = {}
        self._successors: dict[int, tuple[int, dict[int, int]]] = {}
        self._states = {node.id: node.state for node in snapshot.nodes.values()}
        self._leaving = frozenset(node for node, state in self._states.items() if state.is_leaving)
        self._racks = {node.id: node.rack for node in snapshot.nodes.values()}
        self.available = sorted(n for n, state in self._states.items() if state is NodeState.AVAILABLE)
        self._available = frozenset(self.available)
        self._available_racks = {self._racks[node] for node in self.available}
        for number, replicas in enumerate(self.replicas):
            for node, change in _loads(self.partitions[number], replicas).items():
                self._add(node, change)
            for node in replicas:
                self.on_node[node].add(number)
        self.apart = [n for n, replicas in enumerate(self.replicas) if self.missing_racks(n, replicas) > 0]
        """The partitions that could be in more racks, in order."""
        self.weights: list[list[int]] = [
            [partition.size_bytes for partition in self.partitions],
            [1] * len(self.partitions),
            [1] * len(self.partitions),
            [partition.bytes_in for partition in self.partitions],
            [partition.leader_bytes_out for partition in self.partitions],
        ]
        """The load that a replica of each partition adds to its node, by goal. ``of_leaders`` counts leaders only."""
        self._capacities = {
            node: capacity * policy.capacity_percent // _PERCENT
            for node in self.available
            if (capacity := snapshot.nodes[node].capacity_bytes) is not None
        }
        self.ranges = self._ranges()

    def is_leaving(self, node: int) -> bool:
        """Return whether the node is to end without replicas."""
        return node in self._leaving

    def is_movable(self, number: int) -> bool:
        """Return whether soft goals may move the partition: it has a leader, and no node of it is down or leaving."""
        return self.partitions[number].leader >= 0 and self._available.issuperset(self.replicas[number])

    def movable_on(self, node: int) -> list[int]:
        """Return the movable partitions with a replica on the node, in order."""
        version, found = self._movable.get(node, (-1, []))
        if version != self.versions[node]:
            found = [number for number in sorted(self.on_node[node]) if self.is_movable(number)]
            self._movable[node] = self.versions[node], found
        return found

    def successors(self, node: int) -> dict[int, int]:
        """Return the nodes that can lead in place of this one, each with the first partition for which it can."""
        version, found = self._successors.get(node, (-1, {}))
        if version != self.versions[node]:
            found = {}
            for number in self.movable_on(node):
                replicas = self.replicas[number]
                for successor in replicas[1:] if replicas[0] == node else ():
                    found.setdefault(successor, number)
            self._successors[node] = self.versions[node], found
        return found

    def missing_racks(self, number: int, replicas: Sequence[int]) -> int:
        """Return how many more racks the replicas could be in, without counting those on leaving nodes."""
        staying = {self._racks[node] for node in replicas if node not in self._leaving}
        return min(len(replicas), len(self._available_racks | staying)) - len(staying)

    def rack(self, node: int) -> str | None:
        """Return the node's rack. Nodes without one share a rack of their own, as in Kafka's placement."""
        return self._racks[node]

    def free_bytes(self, node: int) -> int | None:
        """Return the bytes that the node can still take, None if its capacity is unknown."""
        return self._capacities[node] - self.values[Goal.DISK][node] if node in self._capacities else None

    def deviation(self, goal: Goal, node: int) -> int:
        """Return by how much the node's value is above its fair share, in thousandths of the share."""
        share = self.ranges[goal][node].share
        return (self.values[goal][node] - share) * 1_000 // max(share, 1)

    def worsens(self, goal: Goal, source: int, target: int, load: int) -> bool:
        """Return whether a load that moves from one node to another sets a soft goal back."""
        values, of_source, of_target = self.values[goal], self.ranges[goal][source], self.ranges[goal][target]
        before = of_source.excess(values[source]) + of_target.excess(values[target])
        return of_source.excess(values[source] - load) + of_target.excess(values[target] + load) > before

    def score(self) -> Score:
        """Return the score of all replicas as they are."""
        evacuation = sum(len(self.on_node[node]) for node in self._states if node in self._leaving)
        racks = sum(self.missing_racks(number, replicas) for number, replicas in enumerate(self.replicas))
        capacity = sum(max(0, self.values[Goal.DISK][n] - limit) for n, limit in self._capacities.items())
        soft = (
            sum(self.ranges[goal][n].excess(self.values[goal][n]) for n in self.available) for goal in self.policy.goals
        )
        return (evacuation, racks, capacity, *soft)

    def effect(self, changes: Changes) -> Score | None:
        """Return by how much the changes would alter the score; None if they would break a rule.

        The rules: no hard goal gets worse, no partition is in fewer racks than before unless its racks are leaving,
        and the plan copies at most ``max_bytes``.
        """
        found = self.hard_effect(changes)
        if found is None:
            return None
        hard, loads = found
        return (*hard, *(self.soft_effect(goal, loads) for goal in self.policy.goals))

    def is_progress(self, changes: Changes, position: int) -> bool:
        """Return whether the changes reduce the score of a soft goal, at ``position``, and none before it."""
        found = self.hard_effect(changes)
        if found is None:
            return False
        _, loads = found
        *earlier, goal = self.policy.goals[: position - HARD_GOALS + 1]
        return self.soft_effect(goal, loads) < 0 and all(self.soft_effect(each, loads) <= 0 for each in earlier)

    def hard_effect(self, changes: Changes) -> tuple[Score, Loads] | None:
        """Return the part of :meth:`effect` that concerns the hard goals, and what the changes add to nodes."""
        if not self.permits(changes):
            return None
        racks = 0
        loads: Loads = {}
        for number, new in changes.items():
            missing = self.rack_effect(number, new)
            if missing is None:
                return None
            racks += missing
            old = self.replicas[number]
            _add_difference(loads, self.partitions[number], old, new)
        evacuation = 0
        if self._leaving:
            evacuation = sum(load[Goal.REPLICAS] for node, load in loads.items() if node in self._leaving)
        capacity = sum(self._capacity_effect(node, load[Goal.DISK]) for node, load in loads.items())
        if evacuation > 0 or racks > 0 or capacity > 0:
            return None
        return (evacuation, racks, capacity), loads

    def rack_effect(self, number: int, new: Sequence[int]) -> int | None:
        """Return how many more racks a partition misses with other replicas; None if it loses racks that stay."""
        old = self.replicas[number]
        if self._keeps_racks(old, new):
            return 0
        return (
            None if self._loses_racks(old, new) else self.missing_racks(number, new) - self.missing_racks(number, old)
        )

    def hard_effect_of_move(self, move: Move, racks: int) -> Score:
        """Return the part of :meth:`effect` that concerns the hard goals; ``racks`` is :meth:`rack_effect` of it."""
        number, node, target = move
        size = self.partitions[number].size_bytes
        evacuation = (target in self._leaving) - (node in self._leaving)
        return evacuation, racks, self._capacity_effect(node, -size) + self._capacity_effect(target, size)

    def soft_effect_of_move(self, goal: Goal, move: Move) -> int:
        """Return the part of :meth:`effect` that concerns a soft goal."""
        number, node, target = move
        load = 0 if goal.of_leaders and self.replicas[number][0] != node else self.weights[goal][number]
        values, total = self.values[goal], 0
        for each, added in ((node, -load), (target, load)):
            of_node = self.ranges[goal].get(each)
            if of_node is not None:
                total += of_node.excess(values[each] + added) - of_node.excess(values[each])
        return total

    def permits(self, changes: Changes) -> bool:
        """Return whether the plan may copy what the changes add."""
        limit = self.policy.max_bytes
        return limit is None or self.copied_bytes + self.copied_by(changes) <= max(limit, self.copied_bytes)

    def soft_effect(self, goal: Goal, loads: Loads) -> int:
        """Return the part of :meth:`effect` that concerns a soft goal, of changes that add ``loads`` to nodes."""
        values, ranges, total = self.values[goal], self.ranges[goal], 0
        for node, load in loads.items():
            added = load[goal]
            if added and node in ranges:
                excess = ranges[node].excess
                total += excess(values[node] + added) - excess(values[node])
        return total

    def copied_by(self, changes: Changes) -> int:
        """Return the bytes that the plan copies more with the changes."""
        return sum(
            self._copied(number, new) - self._copied(number, self.replicas[number]) for number, new in changes.items()
        )

    def apply(self, changes: Changes) -> None:
        """Make the changes."""
        self.copied_bytes += self.copied_by(changes)
        for number, new in changes.items():
            old, loads = self.replicas[number], dict[int, list[int]]()
            _add_difference(loads, self.partitions[number], old, new)
            for node, change in loads.items():
                self._add(node, change)
            for node in old:
                self.on_node[node].discard(number)
            for node in new:
                self.on_node[node].add(number)
            for node in {*old, *new}:
                self.versions[node] += 1
            for node in loads if self._keeps_racks(old, new) else {*old, *new}:
                self.ages[node] += 1
            self.replicas[number] = new
            position = bisect_left(self.apart, number)
            was_apart = self.apart[position : position + 1] == [number]
            self.apart[position : position + was_apart] = [number] if self.missing_racks(number, new) > 0 else []

    def check_invariants(self) -> None:
        """Assert that loads are those of the replicas, and that no partition has lost or doubled a replica."""
        loads: dict[int, list[int]] = {node: [0] * len(Goal) for node in self._states}
        for number, replicas in enumerate(self.replicas):
            assert len(set(replicas)) == len(replicas) == len(self.partitions[number].replicas), (number, replicas)
            assert all(number in self.on_node[node] for node in replicas), number
            assert (number in self.apart) == (self.missing_racks(number, replicas) > 0), number
            for node, load in _loads(self.partitions[number], replicas).items():
                loads[node] = [value + added for value, added in zip(loads[node], load, strict=True)]
        assert {n: [self.values[goal][n] for goal in Goal] for n in self._states} == loads

    def _copied(self, number: int, replicas: Sequence[int]) -> int:
        partition = self.partitions[number]
        return partition.size_bytes * sum(node not in partition.replicas for node in replicas)

    def _keeps_racks(self, old: Sequence[int], new: Sequence[int]) -> bool:
        """Return whether replicas that leave are replaced by others in the same racks, on nodes that stay."""
        return all(
            before == after or (before not in self._leaving and self._racks[before] == self._racks[after])
            for before, after in zip(old, new, strict=True)
        )

    def _loses_racks(self, old: Sequence[int], new: Sequence[int]) -> bool:
        before, after = ({self._racks[node] for node in replicas} for replicas in (old, new))
        staying = {self._racks[node] for node in new if node not in self._leaving}
        return len(after) < min(len(before), len(self._available_racks | staying))

    def _capacity_effect(self, node: int, added: int) -> int:
        if node not in self._capacities:
            return 0
        value, limit = self.values[Goal.DISK][node], self._capacities[node]
        return max(0, value + added - limit) - max(0, value - limit)

    def _add(self, node: int, change: Iterable[int]) -> None:
        for goal, value in enumerate(change):
            self.values[goal][node] += value

    def _ranges(self) -> list[dict[int, Range]]:
        """Return the nodes' ranges by goal: available nodes share what is on them and on leaving nodes."""
        shared = [*self.available, *(n for n in self._states if n in self._leaving)]
        equal = dict.fromkeys(self.available, 1)
        by_capacity = {node: max(self._capacities.get(node, 0), 1) for node in self.available}
        has_capacities = len(self._capacities) == len(self.available)
        return [
            fair_ranges(
                goal,
                sum(self.values[goal][node] for node in shared),
                by_capacity if goal is Goal.DISK and has_capacities else equal,
                self.policy,
            )
            for goal in Goal
        ]


def _loads(partition: Partition, replicas: Sequence[int]) -> Loads:
    """Return what a partition adds to the values of its nodes, by goal."""
    loads = {node: [partition.size_bytes, 1, 0, partition.bytes_in, 0] for node in replicas}
    leader = loads[replicas[0]]
    leader[Goal.LEADERS] = 1
    leader[Goal.BYTES_OUT] = partition.leader_bytes_out
    return loads


def _add_difference(loads: Loads, partition: Partition, old: Sequence[int], new: Sequence[int]) -> None:
    """Add what a change of a partition's replicas adds to the values of nodes, by goal; other nodes keep theirs."""
    size, rate = partition.size_bytes, partition.bytes_in
    for nodes, others, sign in ((old, new, -1), (new, old, 1)):
        for node in nodes:
            if node not in others:
                load = loads.setdefault(node, [0, 0, 0, 0, 0])
                load[Goal.DISK] += sign * size
                load[Goal.REPLICAS] += sign
                load[Goal.BYTES_IN] += sign * rate
    if old[0] != new[0]:
        for node, sign in ((old[0], -1), (new[0], 1)):
            load = loads.setdefault(node, [0, 0, 0, 0, 0])
            load[Goal.LEADERS] += sign
            load[Goal.BYTES_OUT] += sign * partition.leader_bytes_out
