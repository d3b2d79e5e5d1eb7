"""Assignors with racks (KIP-881): balance first, then replicas in the member's rack, then what a member had."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.consumer.assignors import Assignment, KnownTopic, Member, Subscription, assignor_named
from tidelog_foundation.rack_placement import Seat, counts_racks, place

RACKS = ("a", "b", "c")
racks_of_partitions = st.lists(st.frozensets(st.sampled_from(RACKS), min_size=1, max_size=2), min_size=1, max_size=7)
racks_of_members = st.lists(st.sampled_from((*RACKS, None)), min_size=1, max_size=4)


def topic(*racks: str) -> KnownTopic:
    """A topic whose partitions have replicas in these racks, one letter each."""
    return KnownTopic(b"", len(racks), tuple(frozenset(each) for each in racks))


def members(racks: Sequence[str | None], topics: str = "t") -> list[Member]:
    return [Member(f"m{index}", Subscription(frozenset(topics), rack=rack), None) for index, rack in enumerate(racks)]


def numbers(assignment: Assignment) -> list[str]:
    """Each member's partitions, as digits behind their topic."""
    return [" ".join(f"{name}{index}" for name, index in sorted(each)) for each in assignment.values()]


def local(assignment: Assignment, racks: Sequence[str | None], partitions: Sequence[frozenset[str]]) -> int:
    return sum(
        rack is None or rack in partitions[index]
        for rack, each in zip(racks, assignment.values(), strict=True)
        for _, index in each
    )


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_members_get_the_partitions_of_their_racks(assignor: str) -> None:
    chosen = assignor_named(assignor)
    one = topic("a", "b", "c", "a", "b", "c")
    assert numbers(chosen.assign({"t": one}, members("abc"))) == ["t0 t3", "t1 t4", "t2 t5"]
    assert numbers(chosen.assign({"t": one}, members("cab"))) == ["t2 t5", "t0 t3", "t1 t4"]


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_shares_stay_equal_whatever_the_racks_are(assignor: str) -> None:
    shares = assignor_named(assignor).assign({"t": topic("a", "a", "a", "b")}, members("ab"))
    assert [len(each) for each in shares.values()] == [2, 2]
    assert ("t", 3) in shares["m1"]


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("racks", "partitions"),
    [
        ((None, None), ("a", "b", "a", "b")),
        (("x", "y"), ("a", "b", "a", "b")),
        (("b", "a"), ("ab", "ab", "ab", "ab")),
    ],
    ids=["members have none", "members are elsewhere", "replicas are everywhere"],
)
def test_racks_that_make_no_difference_change_nothing(
    assignor: str, racks: tuple[str | None, ...], partitions: tuple[str, ...]
) -> None:
    chosen = assignor_named(assignor)
    without = chosen.assign({"t": topic(*[""] * 4)}, members((None, None)))
    assert chosen.assign({"t": topic(*partitions)}, members(racks)) == without


def test_range_divides_topics_alike_before_it_looks_at_racks() -> None:
    range_assignor = assignor_named("range")
    both = {"t": topic("a", "b"), "u": topic("b", "a")}
    assert numbers(range_assignor.assign(both, members("ba", "tu"))) == ["t0 u0", "t1 u1"]
    same = {"t": topic("a", "b"), "u": topic("a", "b")}
    assert numbers(range_assignor.assign(same, members("ba", "tu"))) == ["t1 u1", "t0 u0"]


def test_sticky_moves_a_partition_to_the_rack_of_its_replica() -> None:
    chosen = assignor_named("cooperative-sticky")
    had = {"m0": frozenset({("t", 0), ("t", 1)}), "m1": frozenset({("t", 2), ("t", 3)})}
    joined = [
        Member(name, Subscription(frozenset("t"), None, owned, 1, rack))
        for (name, owned), rack in zip(had.items(), "ab", strict=True)
    ]
    assignment = chosen.assign({"t": topic("a", "b", "a", "b")}, joined)
    assert numbers(assignment) == ["t0", "t3"], "the other two change hands, and are given up first"


@given(racks=racks_of_members, partitions=racks_of_partitions)
def test_assignors_with_racks_stay_balanced_and_are_no_less_local(
    racks: list[str | None], partitions: list[frozenset[str]]
) -> None:
    plain = KnownTopic(b"", len(partitions))
    racked = KnownTopic(b"", len(partitions), tuple(partitions))
    for name in ("range", "sticky"):
        assignment = assignor_named(name).assign({"t": racked}, members(racks))
        given = sorted(key for each in assignment.values() for key in each)
        assert given == [("t", index) for index in range(len(partitions))]
        sizes = [len(each) for each in assignment.values()]
        assert max(sizes) - min(sizes) <= 1
        without = assignor_named(name).assign({"t": plain}, members([None] * len(racks)))
        if counts_racks(racks, partitions) and name == "sticky":
            assert local(assignment, racks, partitions) >= local(without, racks, partitions)


@given(partitions=racks_of_partitions, data=st.data())
def test_placement_is_the_most_local_one_for_its_counts(partitions: list[frozenset[str]], data: st.DataObject) -> None:
    chairs = data.draw(st.permutations([index % 3 for index in range(len(partitions))]))
    racks = data.draw(st.tuples(*[st.sampled_from(RACKS)] * 3))
    owners = data.draw(st.tuples(*[st.sampled_from((None, 0, 1, 2))] * len(partitions)))
    counts = [chairs.count(seat) for seat in range(3)]
    seats = [
        Seat(racks[seat], counts[seat], [index for index, owner in enumerate(owners) if owner == seat])
        for seat in range(3)
    ]
    placed = place(dict(enumerate(partitions)), seats)
    assert [len(each) for each in placed] == counts
    assert sorted(index for each in placed for index in each) == list(range(len(partitions)))

    def score(order: Sequence[int]) -> int:
        return sum(racks[seat] in partitions[index] for index, seat in enumerate(order))

    best = max(score(order) for order in set(permutations(chairs)))
    assert sum(racks[seat] in partitions[index] for seat, each in enumerate(placed) for index in each) == best


def test_placement_leaves_with_members_what_they_had_in_their_racks() -> None:
    racks = {index: frozenset("a") for index in range(6)}
    seats = [Seat("a", 3, [5, 3, 1, 0]), Seat("a", 3, [4, 2])]
    assert place(racks, seats) == [[5, 3, 1], [4, 2, 0]]
    assert place(racks, [Seat(None, 3, [5, 3, 1]), Seat("a", 3, [])]) == [[5, 3, 1], [0, 2, 4]]
