"""The search for a change that brings one goal forward and no goal before it back. Pure and deterministic.

For a soft goal, a change moves load from one node to another: a leader, a replica, or a replica in exchange for one
that adds less. The nodes that are farthest apart come first; of their changes, the one with the greatest gain, and of
equal ones the one that copies the fewest bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest, nsmallest
from typing import TypeAlias

from tidelog_cli.balance.goals import Goal
from tidelog_cli.balance.placement import CAPACITY, HARD_GOALS, RACKS, Changes, Placement, Score

_Candidates: TypeAlias = Callable[[Placement, Goal, int, int], Iterable[tuple[int, Changes]]]
"""Changes with the load that each moves from the first node to the second."""

_SWAP_CANDIDATES = 16
"""Partitions of each of two nodes that are tried as a pair: the largest of one, the smallest of the other."""

_TRIED_CHANGES = 32
"""Changes between two nodes whose effect on the other goals is examined."""


class Search:
    """Finds changes of one placement. It remembers the pairs of nodes without one until one of the two changes."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._failed: dict[tuple[object, ...], tuple[int, int]] = {}

    def find_evacuation(self, number: int, node: int) -> Changes | None:
        """Return the best move of a partition's replica away from a leaving node."""
        return _best(self._placement, 0, _moves_from(self._placement, number, node))

    def find_change(self, position: int) -> Changes | None:
        """Return a change that reduces the score at ``position`` and none of the hard goals' or earlier ones'."""
        if position in (RACKS, CAPACITY):
            moves = _rack_moves if position == RACKS else _unloading_moves
            best = (_best(self._placement, position, candidates) for candidates in moves(self._placement))
            return next((changes for changes in best if changes is not None), None)
        goal = self._placement.policy.goals[position - HARD_GOALS]
        if goal in (Goal.LEADERS, Goal.BYTES_OUT):
            found = self._between_nodes(goal, position, _leader_moves)
            if found is None and goal is Goal.LEADERS:
                found = _leader_chain(self._placement, position)
            if found is not None:
                return found
        found = self._between_nodes(goal, position, _replica_moves)
        if found is None and goal is not Goal.REPLICAS:
            found = self._between_nodes(goal, position, _swaps)
        return found

    def _between_nodes(self, goal: Goal, position: int, candidates: _Candidates) -> Changes | None:
        """Return a change between a node with much and one with little, the farthest apart first."""
        placement = self._placement
        ranges, values, versions = placement.ranges[goal], placement.values[goal], placement.versions
        ordered = sorted(placement.available, key=lambda node: (placement.deviation(goal, node), node))
        for source in reversed(ordered):
            is_over = values[source] > ranges[source].most
            for target in ordered:
                if placement.deviation(goal, target) >= placement.deviation(goal, source):
                    break
                pair, version = (goal, candidates, source, target), (versions[source], versions[target])
                is_outside = is_over or values[target] < ranges[target].least
                if not is_outside or self._failed.get(pair) == version:
                    continue
                found = _greatest_gain(placement, goal, position, (source, target), candidates)
                if found is not None:
                    return found
                self._failed[pair] = version
        return None


def _greatest_gain(
    placement: Placement, goal: Goal, position: int, nodes: tuple[int, int], candidates: _Candidates
) -> Changes | None:
    source, target = nodes
    of_source, of_target = placement.ranges[goal][source], placement.ranges[goal][target]
    source_value, target_value = placement.values[goal][source], placement.values[goal][target]
    before = of_source.excess(source_value) + of_target.excess(target_value)
    ranked = []
    for load, changes in candidates(placement, goal, source, target):
        after = of_source.excess(source_value - load) + of_target.excess(target_value + load)
        if after < before:
            ranked.append((after, placement.copied_by(changes), sorted(changes.items()), changes))
    best = nsmallest(_TRIED_CHANGES, ranked, key=lambda item: item[:3])
    return next((changes for *_, changes in best if _is_progress(placement.effect(changes), position)), None)


def _best(placement: Placement, position: int, candidates: Iterable[Changes]) -> Changes | None:
    """Return the change with the best effect on all goals."""
    found = [
        (effect, placement.copied_by(changes), sorted(changes.items()), changes)
        for changes in candidates
        if (effect := placement.effect(changes)) is not None and _is_progress(effect, position)
    ]
    return min(found, key=lambda item: item[:3])[3] if found else None


def _is_progress(effect: Score | None, position: int) -> bool:
    return effect is not None and effect[position] < 0 and all(value <= 0 for value in effect[:position])


def _rack_moves(placement: Placement) -> Iterator[Iterable[Changes]]:
    """Yield the moves of each partition that could be in more racks."""
    for number, replicas in enumerate(placement.replicas):
        if placement.missing_racks(number, replicas) > 0 and placement.is_movable(number):
            yield [changes for node in replicas for changes in _moves_from(placement, number, node)]


def _unloading_moves(placement: Placement) -> Iterator[Iterable[Changes]]:
    """Yield the moves of each partition away from a node whose disk is too full, the largest first."""
    for node in placement.available:
        if (placement.free_bytes(node) or 0) < 0:
            sizes = [(-placement.partitions[number].size_bytes, number) for number in _movable(placement, node)]
            for _, number in sorted(sizes):
                yield _moves_from(placement, number, node)


def _moves_from(placement: Placement, number: int, node: int) -> Iterator[Changes]:
    replicas = placement.replicas[number]
    for target in placement.available:
        if target not in replicas:
            yield {number: _replaced(replicas, node, target)}


def _leader_moves(placement: Placement, goal: Goal, source: int, target: int) -> Iterator[tuple[int, Changes]]:
    for number in _movable(placement, source):
        replicas = placement.replicas[number]
        if replicas[0] == source and target in replicas:
            yield _load(placement, goal, number, source), {number: _led_by(replicas, target)}


def _replica_moves(placement: Placement, goal: Goal, source: int, target: int) -> Iterator[tuple[int, Changes]]:
    for number in _movable(placement, source):
        replicas = placement.replicas[number]
        if target not in replicas:
            yield _load(placement, goal, number, source), {number: _replaced(replicas, source, target)}


def _swaps(placement: Placement, goal: Goal, source: int, target: int) -> Iterator[tuple[int, Changes]]:
    def loads(node: int, other: int) -> Iterator[tuple[int, int]]:
        for number in _movable(placement, node):
            if other not in placement.replicas[number]:
                yield _load(placement, goal, number, node), number

    small = nsmallest(_SWAP_CANDIDATES, loads(target, source))
    for load, number in nlargest(_SWAP_CANDIDATES, loads(source, target)):
        for other_load, other in small:
            if load > other_load:
                there = _replaced(placement.replicas[number], source, target)
                back = _replaced(placement.replicas[other], target, source)
                yield load - other_load, {number: there, other: back}


def _leader_chain(placement: Placement, position: int) -> Changes | None:
    """Return moves of leaders along nodes that share partitions, which end at a node that leads fewer."""
    leads, ranges = placement.values[Goal.LEADERS], placement.ranges[Goal.LEADERS]
    for source in sorted(placement.available, key=lambda node: (-leads[node], node)):
        came_by: dict[int, tuple[int, int]] = {}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            is_outside = leads[source] > ranges[source].most or leads[node] < ranges[node].least
            if is_outside and leads[source] - leads[node] >= 2:
                changes = _chain_to(placement, came_by, source, node)
                if _is_progress(placement.effect(changes), position):
                    return changes
            for number in _movable(placement, node):
                replicas = placement.replicas[number]
                for successor in replicas[1:] if replicas[0] == node else ():
                    if successor != source and successor not in came_by:
                        came_by[successor] = (node, number)
                        queue.append(successor)
    return None


def _chain_to(placement: Placement, came_by: dict[int, tuple[int, int]], source: int, end: int) -> Changes:
    changes = {}
    while end != source:
        end_before, number = came_by[end]
        changes[number] = _led_by(placement.replicas[number], end)
        end = end_before
    return changes


def _movable(placement: Placement, node: int) -> list[int]:
    return [number for number in sorted(placement.on_node[node]) if placement.is_movable(number)]


def _load(placement: Placement, goal: Goal, number: int, node: int) -> int:
    """Return what a replica adds to the value of its node."""
    partition, is_leader = placement.partitions[number], placement.replicas[number][0] == node
    match goal:
        case Goal.DISK:
            return partition.size_bytes
        case Goal.REPLICAS:
            return 1
        case Goal.LEADERS:
            return int(is_leader)
        case Goal.BYTES_IN:
            return partition.bytes_in
        case Goal.BYTES_OUT:
            return partition.leader_bytes_out if is_leader else 0


def _replaced(replicas: tuple[int, ...], node: int, target: int) -> tuple[int, ...]:
    return tuple(target if each == node else each for each in replicas)


def _led_by(replicas: tuple[int, ...], leader: int) -> tuple[int, ...]:
    return (leader, *(each for each in replicas if each != leader))
