"""The search for a change that brings one goal forward and no goal before it back. Pure and deterministic.

For a soft goal, a change moves load from one node to another: a leader, a replica, or a replica in exchange for one
that adds less. The nodes that are farthest apart come first; of their changes, the one with the greatest gain, and of
equal ones the one that copies the fewest bytes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import TypeAlias

from tidelog_cli.balance.goals import Goal
from tidelog_cli.balance.placement import CAPACITY, HARD_GOALS, RACKS, Changes, Move, Placement, Score

_Candidate: TypeAlias = tuple[int, tuple[int, ...]]
"""The load that a change moves from one node to another, and the partitions that it changes."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of change between two nodes: its candidates for a goal, and the change that a candidate stands for.

    ``copied`` returns the bytes that a candidate copies. Every change moves one of ``counted`` from the first node to
    the second.
    """

    candidates: Callable[[Placement, Goal, int, int], Iterable[_Candidate]]
    copied: Callable[[Placement, int, int, tuple[int, ...]], int]
    changes: Callable[[Placement, int, int, tuple[int, ...]], Changes]
    load: Callable[[Placement, Goal, int, int, tuple[int, ...]], int]
    """Returns what a change moves from one node to the other for a goal."""
    counted: Goal | None = None


_SWAP_CANDIDATES = 16
"""Partitions of each of two nodes that are tried as a pair: the largest of one, the smallest of the other."""

_TRIED_CHANGES = 32
"""Changes between two nodes whose effect on the other goals is examined."""


class Search:
    """Finds changes of one placement. It remembers the pairs of nodes without one until one of the two changes."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._failed: dict[tuple[Goal, _Kind], dict[tuple[int, int], tuple[int, int]]] = {}

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
        if goal.of_leaders:
            found = self._between_nodes(goal, position, _LEADER_MOVES)
            if found is None and goal is Goal.LEADERS:
                found = _leader_chain(self._placement, position)
            if found is not None:
                return found
        found = self._between_nodes(goal, position, _REPLICA_MOVES)
        if found is None and goal is not Goal.REPLICAS:
            found = self._between_nodes(goal, position, _SWAPS)
        return found

    def _between_nodes(self, goal: Goal, position: int, kind: _Kind) -> Changes | None:
        """Return a change between a node with much and one with little, the farthest apart first."""
        placement = self._placement
        ranges, values, ages = placement.ranges[goal], placement.values[goal], placement.ages
        deviations = {node: placement.deviation(goal, node) for node in placement.available}
        ordered = sorted(placement.available, key=lambda node: (deviations[node], node))
        below = {node for node in ordered if values[node] < ranges[node].least}
        failed = self._failed.setdefault((goal, kind), {})
        for source in reversed(ordered):
            is_over, deviation = values[source] > ranges[source].most, deviations[source]
            for target in ordered:
                if deviations[target] >= deviation:
                    break
                if not (is_over or target in below):
                    continue
                age = (ages[source], ages[target])
                if failed.get((source, target)) == age:
                    continue
                found = _greatest_gain(placement, goal, position, (source, target), kind)
                if found is not None:
                    return found
                failed[source, target] = age
        return None


def _greatest_gain(
    placement: Placement, goal: Goal, position: int, nodes: tuple[int, int], kind: _Kind
) -> Changes | None:
    source, target = nodes
    earlier = placement.policy.goals[: position - HARD_GOALS]
    if kind.counted in earlier and placement.worsens(kind.counted, source, target, 1):
        return None
    of_source, of_target = placement.ranges[goal][source], placement.ranges[goal][target]
    source_value, target_value = placement.values[goal][source], placement.values[goal][target]
    before = of_source.excess(source_value) + of_target.excess(target_value)
    candidates = list(kind.candidates(placement, goal, source, target))
    source_excess, target_excess = of_source.excess, of_target.excess
    afters = {
        load: source_excess(source_value - load) + target_excess(target_value + load)
        for load in {load for load, _ in candidates}
    }
    found = [(after, numbers) for load, numbers in candidates if (after := afters[load]) < before]
    if len(found) > _TRIED_CHANGES:
        # The bytes to copy matter only among those with the greatest gains.
        worst = sorted([after for after, _ in found])[_TRIED_CHANGES - 1]
        found = [candidate for candidate in found if candidate[0] <= worst]
    ranked = [
        (after, kind.copied(placement, source, target, numbers), sorted(numbers), numbers) for after, numbers in found
    ]
    for *_, numbers in nsmallest(_TRIED_CHANGES, ranked):
        # Most candidates fail here, at a fraction of the cost of their whole effect.
        if any(placement.worsens(g, source, target, kind.load(placement, g, source, target, numbers)) for g in earlier):
            continue
        changes = kind.changes(placement, source, target, numbers)
        if placement.is_progress(changes, position):
            return changes
    return None


def _best(placement: Placement, position: int, moves: Iterable[Move]) -> Changes | None:
    """Return the move of one partition with the best effect on all goals among those that reduce a hard one's score."""
    by_place: dict[tuple[int, str | None], int | None] = {}
    by_effect = defaultdict[Score, list[Move]](list)
    for move in moves:
        number, node, target = move
        place = node, placement.rack(target)
        if place not in by_place:
            # Of the target, its rack alone matters to the racks of the partition.
            by_place[place] = placement.rack_effect(number, _moved(placement, move))
        racks = by_place[place]
        if racks is None or racks > 0 or (position == RACKS and racks == 0):
            continue
        effect = placement.hard_effect_of_move(move, racks)
        if effect[position] < 0 and max(effect) <= 0 and placement.permits({number: _moved(placement, move)}):
            by_effect[effect].append(move)
    if not by_effect:
        return None
    best = by_effect[min(by_effect)]
    for goal in placement.policy.goals:
        # A goal matters only among the moves that are equal for the goals before it.
        if len(best) == 1:
            break
        scores = [placement.soft_effect_of_move(goal, move) for move in best]
        least = min(scores)
        best = [move for move, score in zip(best, scores, strict=True) if score == least]
    changes = [{move[0]: _moved(placement, move)} for move in best]
    return min(changes, key=lambda each: (placement.copied_by(each), sorted(each.items())))


def _rack_moves(placement: Placement) -> Iterator[Iterable[Move]]:
    """Yield the moves of each partition that could be in more racks."""
    for number in placement.apart:
        if placement.is_movable(number):
            yield [move for node in placement.replicas[number] for move in _moves_from(placement, number, node)]


def _unloading_moves(placement: Placement) -> Iterator[Iterable[Move]]:
    """Yield the moves of each partition away from a node whose disk is too full, the largest first."""
    for node in placement.available:
        if (placement.free_bytes(node) or 0) < 0:
            sizes = [(-placement.partitions[number].size_bytes, number) for number in placement.movable_on(node)]
            for _, number in sorted(sizes):
                yield _moves_from(placement, number, node)


def _moves_from(placement: Placement, number: int, node: int) -> list[Move]:
    replicas = placement.replicas[number]
    return [(number, node, target) for target in placement.available if target not in replicas]


def _moved(placement: Placement, move: Move) -> tuple[int, ...]:
    number, node, target = move
    return _replaced(placement.replicas[number], node, target)


def _leader_moves(placement: Placement, goal: Goal, source: int, target: int) -> Iterator[_Candidate]:
    weights, on_target = placement.weights[goal], placement.on_node[target]
    for number in placement.movable_on(source):
        if number in on_target and placement.replicas[number][0] == source:
            yield weights[number], (number,)


def _copied_by_leader_move(_: Placement, __: int, ___: int, ____: tuple[int, ...]) -> int:
    return 0


def _leader_move(placement: Placement, source: int, target: int, numbers: tuple[int, ...]) -> Changes:
    return {number: _led_by(placement.replicas[number], target) for number in numbers}


def _replica_moves(placement: Placement, goal: Goal, source: int, target: int) -> Iterator[_Candidate]:
    for load, number in _loads_without(placement, goal, source, target):
        yield load, (number,)


def _copied_by_replica_move(placement: Placement, source: int, target: int, numbers: tuple[int, ...]) -> int:
    return _copied(placement, numbers[0], source, target)


def _replica_move(placement: Placement, source: int, target: int, numbers: tuple[int, ...]) -> Changes:
    return {number: _replaced(placement.replicas[number], source, target) for number in numbers}


def _swaps(placement: Placement, goal: Goal, source: int, target: int) -> Iterator[_Candidate]:
    small = nsmallest(_SWAP_CANDIDATES, _loads_without(placement, goal, target, source))
    for load, number in nlargest(_SWAP_CANDIDATES, _loads_without(placement, goal, source, target)):
        for other_load, other in small:
            if load > other_load:
                yield load - other_load, (number, other)


def _copied_by_swap(placement: Placement, source: int, target: int, numbers: tuple[int, ...]) -> int:
    number, other = numbers
    return _copied(placement, number, source, target) + _copied(placement, other, target, source)


def _swap(placement: Placement, source: int, target: int, numbers: tuple[int, ...]) -> Changes:
    number, other = numbers
    return {
        number: _replaced(placement.replicas[number], source, target),
        other: _replaced(placement.replicas[other], target, source),
    }


def _load(placement: Placement, goal: Goal, number: int, node: int) -> int:
    """Return what a replica adds to the value of its node."""
    return 0 if goal.of_leaders and placement.replicas[number][0] != node else placement.weights[goal][number]


def _load_of_leader(placement: Placement, goal: Goal, _: int, __: int, numbers: tuple[int, ...]) -> int:
    return placement.weights[goal][numbers[0]] if goal.of_leaders else 0


def _load_of_replica(placement: Placement, goal: Goal, source: int, _: int, numbers: tuple[int, ...]) -> int:
    return _load(placement, goal, numbers[0], source)


def _load_of_swap(placement: Placement, goal: Goal, source: int, target: int, numbers: tuple[int, ...]) -> int:
    number, other = numbers
    return _load(placement, goal, number, source) - _load(placement, goal, other, target)


_LEADER_MOVES = _Kind(_leader_moves, _copied_by_leader_move, _leader_move, _load_of_leader, Goal.LEADERS)
_REPLICA_MOVES = _Kind(_replica_moves, _copied_by_replica_move, _replica_move, _load_of_replica, Goal.REPLICAS)
_SWAPS = _Kind(_swaps, _copied_by_swap, _swap, _load_of_swap)


def _loads_without(placement: Placement, goal: Goal, node: int, other: int) -> list[tuple[int, int]]:
    """Return the partitions with a replica on a node and none on the other, each behind its load on the node."""
    weights, on_other, replicas = placement.weights[goal], placement.on_node[other], placement.replicas
    if goal.of_leaders:
        return [
            (weights[number] if replicas[number][0] == node else 0, number)
            for number in placement.movable_on(node)
            if number not in on_other
        ]
    return [(weights[number], number) for number in placement.movable_on(node) if number not in on_other]


def _copied(placement: Placement, number: int, source: int, target: int) -> int:
    """Return the bytes that the plan copies more if a replica moves from one node to another."""
    partition = placement.partitions[number]
    return partition.size_bytes * ((target not in partition.replicas) - (source not in partition.replicas))


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
                if placement.is_progress(changes, position):
                    return changes
            for successor, number in placement.successors(node).items():
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


def _replaced(replicas: tuple[int, ...], node: int, target: int) -> tuple[int, ...]:
    return tuple(target if each == node else each for each in replicas)


def _led_by(replicas: tuple[int, ...], leader: int) -> tuple[int, ...]:
    return (leader, *(each for each in replicas if each != leader))
