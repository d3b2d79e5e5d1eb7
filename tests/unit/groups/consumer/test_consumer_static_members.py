"""Static members of a consumer group: they leave for a while and come back (KIP-345, KIP-848)."""

from __future__ import annotations

import pytest
from consumer_groups import REBALANCE_TIMEOUT_MS, GroupHarness, partitions_in, parts, refused, topic

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
)
from tidelog_node.groups.settings import GroupSettings

SESSION_MS = GroupSettings().consumer_session_timeout_ms


@pytest.fixture
def harness() -> GroupHarness:
    """i1 owns one half of topic a as m1, the dynamic member d the other."""
    harness = GroupHarness(topic("a", 4))
    harness.join("m1", "a", instance_id="i1")
    harness.join("d", "a")
    harness.beat("m1", 1)
    harness.beat("m1", 1, parts("a", 0, 1), instance_id="i1")
    harness.beat("d", 2)
    return harness


def test_static_member_that_comes_back_gets_what_it_had_and_nobody_else_notices(harness: GroupHarness) -> None:
    left = harness.beat("m1", -2, instance_id="i1")
    assert left.member_epoch == -2
    assert [type(key) for key, _ in harness.last_records] == [ConsumerGroupCurrentMemberAssignmentKey]
    assert harness.beat("d", 2).assignment is None
    back = harness.join("m2", "a", instance_id="i1")
    assert (back.member_id, back.member_epoch) == ("m2", 2)
    assert partitions_in(back.assignment) == parts("a", 0, 1)
    assert harness.group.state.group_epoch == 2
    assert harness.beat("d", 2).assignment is None
    assert harness.group.state_name == "Stable"
    assert set(harness.group.state.members) == {"m2", "d"}


def test_static_member_that_comes_back_takes_the_place_of_its_former_self_in_the_records(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    harness.join("m2", "a", instance_id="i1")
    kinds = [
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupMemberMetadataKey,
    ]
    assert harness.last_records[:3] == [(kind("g", "m1"), None) for kind in kinds]


def test_static_member_that_comes_back_under_its_own_id_goes_on(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    back = harness.join("m1", "a", instance_id="i1")
    assert (back.member_epoch, partitions_in(back.assignment)) == (2, parts("a", 0, 1))


def test_static_member_that_comes_back_to_another_target_gives_up_nothing_first(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    harness.join("d2", "a")
    back = harness.join("m2", "a", instance_id="i1")
    # It owned nothing when it came back, so what it is to lose is free at once.
    assert back.member_epoch == 3
    assert len(partitions_in(back.assignment)) < 3
    target = {member_id: len(harness.group.state.targets[member_id]) for member_id in ("m2", "d", "d2")}
    assert sorted(target.values()) == [1, 1, 2]


def test_static_member_that_comes_back_with_another_subscription_begins_an_epoch(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    back = harness.join("m2", "b", instance_id="i1")
    assert back.member_epoch == 3
    assert partitions_in(back.assignment) == frozenset()
    assert partitions_in(harness.beat("d", 2).assignment) == parts("a", 0, 1, 2, 3)


def test_second_live_member_with_the_instance_id_is_refused(harness: GroupHarness) -> None:
    with refused(ErrorCode.UNRELEASED_INSTANCE_ID, "member m2 cannot join with the instance id i1: member m1 has it"):
        harness.join("m2", "a", instance_id="i1")
    assert harness.beat("m1", 2, instance_id="i1").assignment is None


def test_former_self_is_fenced_when_another_has_come(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    harness.join("m2", "a", instance_id="i1")
    for epoch in (2, -1, -2):
        with refused(ErrorCode.FENCED_INSTANCE_ID, "member m2 has taken the instance id i1 of member m1"):
            harness.beat("m1", epoch, instance_id="i1")


def test_member_that_is_away_cannot_go_on_with_its_epoch(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    with refused(ErrorCode.FENCED_MEMBER_EPOCH):
        harness.beat("m1", 2, parts("a", 0, 1), instance_id="i1")


def test_instance_id_that_is_not_known_is_refused(harness: GroupHarness) -> None:
    with refused(ErrorCode.UNKNOWN_MEMBER_ID, "the instance id i2 is not known"):
        harness.beat("d", 2, instance_id="i2")


def test_member_that_is_in_the_group_cannot_take_anothers_place(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    with refused(ErrorCode.INVALID_REQUEST, "member d is in the group already"):
        harness.join("d", "a", instance_id="i1")


def test_static_member_that_leaves_for_good_frees_its_partitions(harness: GroupHarness) -> None:
    harness.beat("m1", -1, instance_id="i1")
    assert partitions_in(harness.beat("d", 2).assignment) == parts("a", 0, 1, 2, 3)
    assert "i1" not in harness.group.state.static_members


def test_static_member_that_does_not_come_back_is_removed_after_its_session(harness: GroupHarness) -> None:
    harness.beat("m1", -2, instance_id="i1")
    harness.beat("m1", -2, instance_id="i1")
    assert harness.last_records == []
    harness.pass_time(SESSION_MS - 1)
    assert "m1" in harness.group.state.members
    harness.beat("d", 2)
    harness.pass_time(1)
    assert "m1" not in harness.group.state.members
    assert partitions_in(harness.beat("d", 2).assignment) == parts("a", 0, 1, 2, 3)


def test_static_member_may_go_away_while_it_has_partitions_to_give_up(harness: GroupHarness) -> None:
    harness.join("d2", "a")
    for member_id in ("m1", "d"):
        harness.beat(member_id, 2)
    waiting = harness.group.state.members["m1"].pending_revocation
    harness.beat("m1", -2, instance_id="i1")
    assert all(harness.group.state.owner_of(partition) != "m1" for partition in waiting)
    harness.pass_time(REBALANCE_TIMEOUT_MS)
    assert "m1" in harness.group.state.members


def test_static_member_may_come_back_to_a_full_group() -> None:
    harness = GroupHarness(topic("a", 4), settings=GroupSettings(consumer_max_size=1))
    harness.join("m1", "a", instance_id="i1")
    harness.beat("m1", -2, instance_id="i1")
    assert harness.join("m2", "a", instance_id="i1").member_epoch == 1


def test_member_may_take_another_instance_id_when_it_joins_again(harness: GroupHarness) -> None:
    harness.join("m1", "a", instance_id="i9")
    assert harness.group.state.static_members == {"i9": "m1"}
