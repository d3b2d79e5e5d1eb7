"""Racks in groups of KIP-848: ``uniform`` assigns by them, and the group follows where replicas are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from consumer_groups import GroupHarness, join_request, partitions_in, parts, topic

from tidelog_node.groups.consumer.assignors import Assignment, MemberSpec, assign_range, assign_uniform
from tidelog_node.groups.events import TopicInfo

A = topic("a", 4)


def racks(*of_partitions: str) -> tuple[frozenset[str], ...]:
    """Return the racks of each partition's replicas, one letter each."""
    return tuple(frozenset(each) for each in of_partitions)


def specs(**members: tuple[str | None, Assignment]) -> dict[str, MemberSpec]:
    return {name: MemberSpec(frozenset({A.topic_id}), had, rack_id=rack) for name, (rack, had) in members.items()}


def test_uniform_gives_members_the_partitions_of_their_racks_in_equal_numbers() -> None:
    members = specs(m1=("y", frozenset()), m2=("x", frozenset()))
    assigned = assign_uniform(members, {A.topic_id: 4}, {A.topic_id: racks("x", "x", "x", "y")})
    assert {name: len(partitions) for name, partitions in assigned.items()} == {"m1": 2, "m2": 2}
    assert parts("a", 3) <= assigned["m1"]


def test_uniform_keeps_what_members_had_in_their_racks() -> None:
    members = specs(m1=("x", parts("a", 2, 3)), m2=("x", parts("a", 0, 1)), m3=("y", frozenset()))
    assigned = assign_uniform(members, {A.topic_id: 4}, {A.topic_id: racks("xy", "x", "x", "x")})
    assert assigned == {"m1": parts("a", 2, 3), "m2": parts("a", 1), "m3": parts("a", 0)}


@pytest.mark.parametrize("where", [racks(), racks("xy", "xy", "xy", "xy")], ids=["not known", "everywhere"])
def test_racks_that_make_no_difference_change_nothing(where: tuple[frozenset[str], ...]) -> None:
    had = specs(m1=("x", frozenset()), m2=("y", frozenset()))
    without = specs(m1=(None, frozenset()), m2=(None, frozenset()))
    counts = {A.topic_id: 4}
    assert assign_uniform(had, counts, {A.topic_id: where}) == assign_uniform(without, counts)


def test_range_does_not_look_at_racks() -> None:
    members = specs(m1=("y", frozenset()), m2=("x", frozenset()))
    where = {A.topic_id: racks("x", "x", "y", "y")}
    assert assign_range(members, {A.topic_id: 4}, where) == assign_range(members, {A.topic_id: 4})


@pytest.mark.parametrize("rack", ["y", None])
def test_group_with_racks_alone_follows_replicas_that_move(rack: str | None) -> None:
    harness = GroupHarness(on("x", "x", "y", "y"))
    for member_id, its_rack in (("m1", "x"), ("m2", rack)):
        request = join_request(member_id, "a")
        if rack is not None and its_rack is not None:
            request = replace(request, rack_id=its_rack)
        harness.send(request)
    harness.beat("m1", 1)
    harness.beat("m1", 1, parts("a", 0, 1))
    assert partitions_in(harness.beat("m2", 2).assignment) == parts("a", 2, 3)
    epoch = harness.group.state.group_epoch
    harness.change_topics(on("y", "y", "x", "x"))
    harness.beat("m2", 2)
    moved = harness.group.state.targets["m1"] == parts("a", 2, 3)
    assert (harness.group.state.group_epoch, moved) == ((epoch, False) if rack is None else (epoch + 1, True))


def on(*of_partitions: str) -> TopicInfo:
    return replace(A, racks=racks(*of_partitions))
