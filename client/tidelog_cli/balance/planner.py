"""The plan of a rebalance: which replicas and leaders move where. Pure and deterministic.

The planner goes through the goals in order, as long as a pass changes something. A step is a change that brings a goal
forward without a setback for a goal before it. So each step makes the score smaller in the order of its numbers, the
steps end, and the plan for a cluster that is as planned is empty. A plan has the difference of start and end: a
partition moves at most once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidelog.message import TopicPartition
from tidelog_cli.balance.goals import Goal, Policy
from tidelog_cli.balance.placement import EVACUATION, HARD_GOALS, Changes, Placement, Score
from tidelog_cli.balance.search import Search
from tidelog_cli.balance.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's replicas before and after; the first is the preferred leader. ``bytes`` are those to copy."""

    key: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int

    @property
    def adding(self) -> tuple[int, ...]:
        """The nodes that get a replica."""
        return tuple(node for node in self.after if node not in self.before)

    @property
    def removing(self) -> tuple[int, ...]:
        """The nodes that lose their replica."""
        return tuple(node for node in self.before if node not in self.after)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A hard goal that the plan does not reach for a partition, and the reason."""

    key: TopicPartition
    node: int
    reason: str


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A node's values by goal, before and after a plan."""

    node: int
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves, with the preferred leaders to elect afterwards and the effect on nodes and goals.

    ``elections`` are the partitions that another node than the preferred leader leads. ``obstacles`` are the replicas
    that cannot leave a leaving node. A plan ``is_limited`` if ``max_bytes`` permits no further move.
    """

    moves: tuple[Move, ...]
    elections: tuple[TopicPartition, ...]
    loads: tuple[NodeLoad, ...]
    score_before: Score
    score_after: Score
    obstacles: tuple[Obstacle, ...] = ()
    is_limited: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.moves and not self.elections

    @property
    def bytes(self) -> int:
        """The bytes to copy."""
        return sum(move.bytes for move in self.moves)


def make_plan(snapshot: ClusterSnapshot, policy: Policy | None = None, *, only_leaving: bool = False) -> Plan:
    """Return the plan for a cluster; with ``only_leaving``, the plan that empties leaving nodes and does no more."""
    policy = policy or Policy()
    placement = Placement(snapshot, policy)
    before, loads = placement.score(), _loads(placement)
    for _ in steps(placement, only_leaving=only_leaving):
        pass
    after = placement.score()
    is_limited = False
    if policy.max_bytes is not None:
        unlimited = make_plan(snapshot, replace(policy, max_bytes=None), only_leaving=only_leaving)
        is_limited = unlimited.score_after < after
    return Plan(
        _moves(placement),
        tuple(placement.keys[number] for number in range(len(placement.keys)) if _needs_election(placement, number)),
        tuple(NodeLoad(node, loads[node], values) for node, values in sorted(_loads(placement).items())),
        before,
        after,
        tuple(_obstacles(placement)),
        is_limited,
    )


def steps(placement: Placement, *, only_leaving: bool = False) -> Iterator[Score]:
    """Improve a placement step by step, and yield the change of the score at each step."""
    search, is_changed = Search(placement), True
    while is_changed:
        # A change for one goal can make way for a goal before it, hence another pass.
        is_changed = False
        for effect in _pass(placement, search, only_leaving=only_leaving):
            is_changed = True
            yield effect


def _pass(placement: Placement, search: Search, *, only_leaving: bool) -> Iterator[Score]:
    yield from _evacuate(placement, search)
    for position in range(EVACUATION + 1, 0 if only_leaving else HARD_GOALS + len(placement.policy.goals)):
        while (changes := search.find_change(position)) is not None:
            yield _applied(placement, changes)


def _evacuate(placement: Placement, search: Search) -> Iterator[Score]:
    """Move replicas away from leaving nodes, the largest first, because they fit in the fewest places."""
    leaving = [
        (-placement.partitions[number].size_bytes, number, node)
        for node in placement.on_node
        if placement.is_leaving(node)
        for number in placement.on_node[node]
        if placement.partitions[number].leader >= 0
    ]
    for _, number, node in sorted(leaving):
        changes = search.find_evacuation(number, node)
        if changes is not None:
            yield _applied(placement, changes)


def _applied(placement: Placement, changes: Changes) -> Score:
    effect = placement.effect(changes)
    assert effect is not None, changes
    placement.apply(changes)
    return effect


def _moves(placement: Placement) -> tuple[Move, ...]:
    moves = []
    for key, partition, after in zip(placement.keys, placement.partitions, placement.replicas, strict=True):
        if after != partition.replicas:
            copies = sum(node not in partition.replicas for node in after)
            moves.append(Move(key, partition.replicas, after, partition.size_bytes * copies))
    return tuple(moves)


def _needs_election(placement: Placement, number: int) -> bool:
    preferred = placement.replicas[number][0]
    return preferred in placement.available and placement.partitions[number].leader not in (-1, preferred)


def _loads(placement: Placement) -> dict[int, tuple[int, ...]]:
    return {node: tuple(placement.values[goal][node] for goal in Goal) for node in placement.on_node}


def _obstacles(placement: Placement) -> Iterator[Obstacle]:
    for node in sorted(placement.on_node):
        if placement.is_leaving(node):
            for number in sorted(placement.on_node[node]):
                yield Obstacle(placement.keys[number], node, _reason(placement, number))


def _reason(placement: Placement, number: int) -> str:
    partition, replicas = placement.partitions[number], placement.replicas[number]
    if partition.leader < 0:
        return "it has no leader, so no node can copy it"
    free = [node for node in placement.available if node not in replicas]
    if not free:
        return f"its replication factor is {len(replicas)}, and {len(placement.available)} running nodes would remain"
    limit = placement.policy.max_bytes
    if limit is not None and placement.copied_bytes + partition.size_bytes > limit:
        return f"the plan would copy more than {limit:,} bytes"
    roomy = [n for n in free if (room := placement.free_bytes(n)) is None or room >= partition.size_bytes]
    if not roomy:
        return f"no other node has room for its {partition.size_bytes:,} bytes"
    nodes = ", ".join(map(str, roomy))
    return f"the nodes with room for its {partition.size_bytes:,} bytes ({nodes}) are in racks that have a replica"
