"""The assignment of partitions to members whose counts are fixed, with respect to racks (KIP-881).

As many partitions as possible go to a member whose rack has a replica, from which it can fetch (KIP-392). Among such
assignments, it chooses one that keeps previous owners where possible. The clients' sticky assignors and the
coordinator's ``uniform`` use it; balance takes precedence over racks, and racks over stickiness.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from tidelog_foundation.dataclass import dataclass

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Seat(Generic[P]):
    """A member: its rack, its number of partitions, and its previous partitions, the most wanted first.

    Each is one of the partitions to place, and in ``had`` of at most one seat.
    """

    rack: str | None
    count: int
    had: Sequence[P]


def counts_racks(member_racks: Iterable[str | None], partition_racks: Collection[frozenset[str]]) -> bool:
    """Return True if racks matter (Kafka's ``useRackAwareAssignment``).

    They do not if no member's rack has a replica, or if every partition has a replica in all racks.
    """
    everywhere = frozenset[str]().union(*partition_racks)
    members = {rack for rack in member_racks if rack is not None}
    return not members.isdisjoint(everywhere) and any(racks != everywhere for racks in partition_racks)


def place(racks: Mapping[P, frozenset[str]], seats: Sequence[Seat[P]]) -> list[list[P]]:
    """Return the partitions of each seat; the seats' counts must add up to the partitions in ``racks``."""
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
    """Deal partitions to seats in turn, to spread each topic."""
    open_seats = deque(index for index in indexes if len(placed[index]) < seats[index].count)
    for partition in partitions:
        index = open_seats.popleft()
        placed[index].append(partition)
        del left[partition]
        if len(placed[index]) < seats[index].count:
            open_seats.append(index)


@dataclass(slots=True)
class _Rack(Generic[P]):
    """The members of one rack; ``movable[other]`` are its partitions that also have a replica in the other rack."""

    free: int = 0
    movable: dict[str, dict[P, None]] = field(default_factory=dict)


class _LocalPartitions(Generic[P]):
    """A maximum matching of partitions to racks, grown by augmenting paths; used once."""

    def __init__(self, racks: Mapping[P, frozenset[str]], seats: Sequence[Seat[P]]) -> None:
        self._racks = racks
        self._rack_of: dict[P, str] = {}
        # A member without a rack keeps its partitions, because all are equal to it.
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
        """Return the rack of each partition that can be read locally."""
        hopeless: set[frozenset[str]] = set()
        for partition, racks in self._racks.items():
            if partition in self._rack_of or partition in self._kept or racks in hopeless:
                continue
            if not self._augment(partition):
                # Once one partition has no place, no later one in the same racks has.
                hopeless.add(racks)
        return self._rack_of

    def _augment(self, partition: P) -> bool:
        """Find a place for a partition by moving others between racks; return True on success."""
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
            # Move the latest arrival, which no member had before.
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
