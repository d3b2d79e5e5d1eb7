"""Which member reads which partition, when the number of each member is settled and racks count (KIP-881).

As many partitions as possible go to a member whose rack has a replica: it can fetch from there (KIP-392). Of such
placements one is taken that leaves with members what they had, as far as it goes. The clients' sticky assignors and the
coordinator's ``uniform`` place by it; balance comes before racks, and racks before stickiness.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Seat(Generic[P]):
    """A member: its rack, the number of partitions that it gets, and those that it had, the most wanted first.

    Each partition is one of those to place, and in ``had`` of at most one seat.
    """

    rack: str | None
    count: int
    had: Sequence[P]


def counts_racks(member_racks: Iterable[str | None], partition_racks: Collection[frozenset[str]]) -> bool:
    """Return whether racks make a difference (Kafka's ``useRackAwareAssignment``).

    They do not where no member has a rack of a replica, nor where every partition has a replica in all racks.
    """
    everywhere = frozenset[str]().union(*partition_racks)
    members = {rack for rack in member_racks if rack is not None}
    return not members.isdisjoint(everywhere) and any(racks != everywhere for racks in partition_racks)


def place(racks: Mapping[P, frozenset[str]], seats: Sequence[Seat[P]]) -> list[list[P]]:
    """Return the partitions of each seat; together they have as many as there are partitions in ``racks``."""
    assert sum(seat.count for seat in seats) == len(racks)
    local = _LocalPartitions(racks, seats).matched()
    placed: list[list[P]] = [[] for _ in seats]
    left = dict.fromkeys(racks)

    def take(index: int, partition: P) -> None:
        if partition in left and len(placed[index]) < seats[index].count:
            placed[index].append(partition)
            del left[partition]

    for index, seat in enumerate(seats):
        for partition in seat.had:
            if local.get(partition) == seat.rack:
                take(index, partition)
    for rack in {seat.rack: None for seat in seats if seat.rack is not None}:
        in_rack = [index for index, seat in enumerate(seats) if seat.rack == rack]
        _deal([p for p in left if local.get(p) == rack], in_rack, seats, placed, left)
    for index, seat in enumerate(seats):
        for partition in seat.had:
            take(index, partition)
    _deal(list(left), range(len(seats)), seats, placed, left)
    return placed


def _deal(
    partitions: Sequence[P],
    indexes: Iterable[int],
    seats: Sequence[Seat[P]],
    placed: list[list[P]],
    left: dict[P, None],
) -> None:
    """Give one partition after the other to one seat after the other, so that topics are spread."""
    open_seats = deque(index for index in indexes if len(placed[index]) < seats[index].count)
    for partition in partitions:
        index = open_seats.popleft()
        placed[index].append(partition)
        del left[partition]
        if len(placed[index]) < seats[index].count:
            open_seats.append(index)


@dataclass(slots=True)
class _Rack(Generic[P]):
    """The members of one rack; ``movable[other]`` are partitions here that have a replica in the other rack as well."""

    free: int = 0
    movable: dict[str, dict[P, None]] = field(default_factory=dict)


class _LocalPartitions(Generic[P]):
    """A largest matching of partitions to racks, grown by augmenting paths; used once."""

    def __init__(self, racks: Mapping[P, frozenset[str]], seats: Sequence[Seat[P]]) -> None:
        self._racks = racks
        self._rack_of: dict[P, str] = {}
        # A member without a rack keeps what it had: any partition is as good to it.
        self._kept = {p for seat in seats if seat.rack is None for p in seat.had[: seat.count]}
        self._states: dict[str, _Rack[P]] = {}
        for seat in seats:
            if seat.rack is not None:
                self._states.setdefault(seat.rack, _Rack()).free += seat.count
        for seat in seats:
            if seat.rack is not None:
                for partition in [p for p in seat.had if seat.rack in racks[p]][: seat.count]:
                    self._put(partition, seat.rack)
                    self._states[seat.rack].free -= 1

    def matched(self) -> dict[P, str]:
        """Return the rack of each partition that can be read in its rack."""
        hopeless: set[frozenset[str]] = set()
        for partition, racks in self._racks.items():
            if partition in self._rack_of or partition in self._kept or racks in hopeless:
                continue
            if not self._augment(partition):
                # Where one partition found no place, no later one in the same racks does.
                hopeless.add(racks)
        return self._rack_of

    def _augment(self, partition: P) -> bool:
        """Find a place for a partition, moving others on from rack to rack; return whether there is one."""
        there = [rack for rack in sorted(self._racks[partition]) if rack in self._states]
        came_from: dict[str, str | None] = dict.fromkeys(there)
        queue = deque(came_from)
        while queue:
            rack = queue.popleft()
            if self._states[rack].free:
                self._states[rack].free -= 1
                self._shift(partition, rack, came_from)
                return True
            for other, movable in self._states[rack].movable.items():
                if movable and other not in came_from:
                    came_from[other] = rack
                    queue.append(other)
        return False

    def _shift(self, partition: P, rack: str, came_from: Mapping[str, str | None]) -> None:
        while (before := came_from[rack]) is not None:
            # The last that came moves on: it is none that a member had.
            moved = next(reversed(self._states[before].movable[rack]))
            self._remove(moved, before)
            self._put(moved, rack)
            rack = before
        self._put(partition, rack)

    def _put(self, partition: P, rack: str) -> None:
        self._rack_of[partition] = rack
        for other in self._racks[partition]:
            if other != rack and other in self._states:
                self._states[rack].movable.setdefault(other, {})[partition] = None

    def _remove(self, partition: P, rack: str) -> None:
        for other in self._racks[partition]:
            if other != rack and other in self._states:
                del self._states[rack].movable[other][partition]
