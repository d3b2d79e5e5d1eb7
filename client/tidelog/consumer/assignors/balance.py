"""Balancing for the sticky assignors, by counts. Racks decide only which partitions a member gets (KIP-881).

Topics with the same subscribers form a class. Balance depends only on the number of partitions that each member has of
each class, so the numbers are settled first. Each member then keeps as many of its partitions as its numbers allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from tidelog.consumer.assignors.assignor import Assignment, KnownTopic, Member
from tidelog.consumer.assignors.protocol import Key
from tidelog.consumer.assignors.range import racks_of, subscribers_by_topic
from tidelog_foundation.rack_placement import Seat, counts_racks, place


@dataclass(slots=True)
class _Class:
    """Topics with the same ``subscribers``. ``kept`` and ``counts`` are by subscriber: its old partitions, its new
    number.
    """

    subscribers: tuple[int, ...]
    partitions: list[Key] = field(default_factory=list)
    kept: dict[int, list[Key]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)


def assign_sticky(
    topics: Mapping[str, KnownTopic], members: Sequence[Member], previous: Mapping[str, tuple[frozenset[Key], int]]
) -> Assignment:
    """Return a balanced assignment that leaves each member as many of its partitions as possible.

    ``previous`` holds each member's former partitions and their generation. If two members claim a partition, the later
    generation wins; if the generations are equal, neither does (KIP-341).
    """
    ordered = sorted(members, key=lambda member: member.order)
    owners = _owners(ordered, previous)
    classes = _classes(topics, ordered, owners)
    loads = [0] * len(ordered)
    for each in classes:
        for member, kept in each.kept.items():
            loads[member] += len(kept)
    for each in classes:
        _fill(each, loads)
    while any(_level(each, loads) for each in classes) or any(_undo(each, loads) for each in classes):
        pass
    assignment: Assignment = {member.member_id: [] for member in ordered}
    racks = {key: racks_of(topics, key) for each in classes for key in each.partitions}
    is_rack_aware = counts_racks((member.subscription.rack for member in ordered), racks.values())
    for each in classes:
        if is_rack_aware:
            _place(each, ordered, racks, assignment)
        else:
            _hand_out(each, ordered, assignment)
    return assignment


def _owners(ordered: Sequence[Member], previous: Mapping[str, tuple[frozenset[Key], int]]) -> dict[Key, int]:
    claims: dict[Key, tuple[int, int]] = {}
    for index, member in enumerate(ordered):
        partitions, generation = previous[member.member_id]
        for key in partitions:
            known, _ = claims.get(key, (generation - 1, 0))
            if generation > known:
                claims[key] = (generation, index)
            elif generation == known:
                claims[key] = (generation, -1)
    return {key: index for key, (_, index) in claims.items() if index >= 0}


def _classes(topics: Mapping[str, KnownTopic], ordered: list[Member], owners: Mapping[Key, int]) -> list[_Class]:
    """Return the classes, fewest subscribers first: their partitions have the least choice."""
    found: dict[tuple[int, ...], _Class] = {}
    for topic, subscribers in subscribers_by_topic(topics, ordered).items():
        whose = tuple(subscribers)
        each = found.setdefault(whose, _Class(whose, counts=dict.fromkeys(whose, 0)))
        for key in ((topic, partition) for partition in range(topics[topic].partitions)):
            each.partitions.append(key)
            owner = owners.get(key, -1)
            if owner in each.counts:
                each.kept.setdefault(owner, []).append(key)
                each.counts[owner] += 1
    return sorted(found.values(), key=lambda each: (len(each.subscribers), each.subscribers))


def _fill(each: _Class, loads: list[int]) -> None:
    """Give unowned partitions to the members with the fewest."""
    free = len(each.partitions) - sum(each.counts.values())
    heap = [(loads[member], member) for member in each.subscribers]
    heapify(heap)
    for _ in range(free):
        load, member = heap[0]
        each.counts[member] += 1
        loads[member] += 1
        heapreplace(heap, (load + 1, member))


def _level(each: _Class, loads: list[int]) -> bool:
    """Move partitions of the class from the fullest to the emptiest member while they differ by two; return True on a
    move.
    """
    givers = [_giver(each, loads, member) for member in each.subscribers if each.counts[member]]
    takers = [_taker(each, loads, member) for member in each.subscribers]
    heapify(givers)
    heapify(takers)
    moved = False
    while givers:
        giver, taker = givers[0][-1], takers[0][-1]
        if -givers[0][0] != loads[giver] or not each.counts[giver]:
            heappop(givers)
        elif takers[0][0] != loads[taker]:
            heappop(takers)
        elif loads[giver] - loads[taker] < 2:
            break
        else:
            _move(each, loads, giver, taker)
            moved = True
            for member in (giver, taker):
                heappush(givers, _giver(each, loads, member))
                heappush(takers, _taker(each, loads, member))
    return moved


def _undo(each: _Class, loads: list[int]) -> bool:
    """Return partitions that a fuller member got from an emptier one; return True if any went back.

    The fuller member has one partition more. Afterwards the emptier one has, and the assignment contains one move less.
    """
    losers = [(loads[member], member) for member in each.subscribers if _surplus(each, member) < 0]
    gainers = [(-loads[member], member) for member in each.subscribers if _surplus(each, member) > 0]
    heapify(losers)
    heapify(gainers)
    undone = False
    while losers and gainers and -gainers[0][0] > losers[0][0]:
        gainer, loser = heappop(gainers)[1], heappop(losers)[1]
        _move(each, loads, gainer, loser)
        undone = True
        if _surplus(each, gainer) > 0:
            heappush(gainers, (-loads[gainer], gainer))
        if _surplus(each, loser) < 0:
            heappush(losers, (loads[loser], loser))
    return undone


def _place(
    each: _Class, ordered: Sequence[Member], racks: Mapping[Key, frozenset[str]], assignment: Assignment
) -> None:
    """Turn counts into partitions, and place as many as possible with members in a replica's rack."""
    seats = [
        Seat(ordered[member].subscription.rack or None, each.counts[member], each.kept.get(member, ()))
        for member in each.subscribers
    ]
    placed = place({key: racks[key] for key in each.partitions}, seats)
    for member, partitions in zip(each.subscribers, placed, strict=True):
        assignment[ordered[member].member_id] += partitions


def _hand_out(each: _Class, ordered: Sequence[Member], assignment: Assignment) -> None:
    """Turn counts into partitions: first each member's old ones, then the others in turn, to spread each topic."""
    remaining = set(each.partitions)
    wanting: deque[tuple[int, int]] = deque()
    for member in each.subscribers:
        kept = each.kept.get(member, [])[: each.counts[member]]
        assignment[ordered[member].member_id] += kept
        remaining.difference_update(kept)
        if each.counts[member] > len(kept):
            wanting.append((member, each.counts[member] - len(kept)))
    for key in each.partitions:
        if key in remaining:
            member, wanted = wanting.popleft()
            assignment[ordered[member].member_id].append(key)
            if wanted > 1:
                wanting.append((member, wanted - 1))


def _surplus(each: _Class, member: int) -> int:
    return each.counts[member] - len(each.kept.get(member, ()))


def _giver(each: _Class, loads: list[int], member: int) -> tuple[int, bool, int]:
    return (-loads[member], _surplus(each, member) <= 0, member)


def _taker(each: _Class, loads: list[int], member: int) -> tuple[int, bool, int]:
    return (loads[member], _surplus(each, member) >= 0, member)


def _move(each: _Class, loads: list[int], giver: int, taker: int) -> None:
    for member, change in ((giver, -1), (taker, 1)):
        each.counts[member] += change
        loads[member] += change
