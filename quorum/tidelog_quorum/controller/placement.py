"""Where the replicas of a new topic go: rack-aware, and evenly over the brokers.

Within a topic no broker holds more than one replica more than another, and none leads more than one partition more than
another, wherever the racks allow that; the replicas of one partition are spread over as many racks as there are. Ties
go to the broker that has least of the other topics, so that many small topics are spread as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.errors import ErrorCode, error_for
from tidelog.ids import BrokerId
from tidelog_quorum.metadata.image import MetadataImage


def place_replicas(image: MetadataImage, num_partitions: int, replication_factor: int) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of each partition, the preferred leader first, out of the brokers that are active.

    Raises:
        TidelogError: INVALID_REPLICATION_FACTOR when there are fewer active brokers than replicas.
    """
    racks = {b.broker_id: b.rack for b in image.brokers.values() if b.is_active}
    if replication_factor > len(racks):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs {replication_factor} live brokers, but {len(racks)} "
            f"of {len(image.brokers)} registered are available",
        )
    placer = _Placer(racks, image)
    return _balance_leaders([placer.place(replication_factor) for _ in range(num_partitions)], sorted(racks))


class _Placer:
    """Greedy: each replica goes where least is so far. Used for one topic and dropped."""

    def __init__(self, racks: Mapping[BrokerId, str], image: MetadataImage) -> None:
        self._racks = racks
        self._rack_sizes = Counter(racks.values())
        self._rack_load: Counter[str] = Counter()
        self._replicas: Counter[BrokerId] = Counter()
        self._leaders: Counter[BrokerId] = Counter()
        self._all_replicas, self._all_leaders = _load_of(image)

    def place(self, replication_factor: int) -> tuple[BrokerId, ...]:
        chosen: list[BrokerId] = []
        used_racks: Counter[str] = Counter()
        for _ in range(replication_factor):
            broker_id = min(
                (b for b in self._racks if b not in chosen), key=lambda b: self._replica_cost(b, used_racks)
            )
            chosen.append(broker_id)
            used_racks[self._racks[broker_id]] += 1
        leader = min(chosen, key=self._leader_cost)
        self._note(chosen, leader)
        return (leader, *(b for b in chosen if b != leader))

    def _replica_cost(self, broker_id: BrokerId, used_racks: Mapping[str, int]) -> tuple[float, ...]:
        rack = self._racks[broker_id]
        return (
            used_racks.get(rack, 0),
            self._rack_load[rack] / self._rack_sizes[rack],
            self._replicas[broker_id],
            self._leaders[broker_id],
            self._all_replicas[broker_id],
            broker_id,
        )

    def _leader_cost(self, broker_id: BrokerId) -> tuple[int, ...]:
        return (self._leaders[broker_id], self._all_leaders[broker_id], broker_id)

    def _note(self, chosen: Sequence[BrokerId], leader: BrokerId) -> None:
        self._leaders[leader] += 1
        self._replicas.update(chosen)
        self._rack_load.update(self._racks[b] for b in chosen)


def _balance_leaders(placements: list[tuple[BrokerId, ...]], brokers: Sequence[BrokerId]) -> list[tuple[BrokerId, ...]]:
    """Pass leaderships on along chains of shared partitions until no chain ends at a broker that leads two fewer.

    When no such chain is left the leaderships are as even as the replicas allow (Harvey et al., "Semi-matchings for
    bipartite graphs and load balancing", 2006).
    """
    while path := _improvement(placements, brokers):
        for index, heir in path:
            placements[index] = (heir, *(b for b in placements[index] if b != heir))
    return placements


def _improvement(placements: Sequence[tuple[BrokerId, ...]], brokers: Sequence[BrokerId]) -> list[tuple[int, BrokerId]]:
    leaders = Counter(p[0] for p in placements)
    for end in sorted(brokers, key=lambda b: leaders[b]):
        starts = {b for b in brokers if leaders[b] >= leaders[end] + 2}
        if path := _path(placements, starts, end):
            return path
    return []


def _path(
    placements: Sequence[tuple[BrokerId, ...]], starts: set[BrokerId], end: BrokerId
) -> list[tuple[int, BrokerId]]:
    """Return the shortest chain of (partition, heir) by which one of ``starts`` leads one less and ``end`` one more."""
    came_by: dict[BrokerId, tuple[int, BrokerId]] = {}
    reached, seen = set(starts), set(starts)
    while reached and end not in seen:
        steps = [(i, p[0], b) for i, p in enumerate(placements) if p[0] in reached for b in p[1:]]
        reached = set()
        for index, leader, heir in steps:
            if heir not in seen:
                seen.add(heir)
                reached.add(heir)
                came_by[heir] = (index, leader)
    path: list[tuple[int, BrokerId]] = []
    while end in came_by:
        index, leader = came_by[end]
        path.append((index, end))
        end = leader
    return path


def _load_of(image: MetadataImage) -> tuple[Counter[BrokerId], Counter[BrokerId]]:
    replicas: Counter[BrokerId] = Counter()
    leaders: Counter[BrokerId] = Counter()
    for _, _, partition in image.partitions():
        replicas.update(partition.replicas)
        # The preferred leader: who leads at the moment depends on who is up.
        leaders[partition.replicas[0]] += 1
    return replicas, leaders
