"""Sessions and rebalance timeouts of a consumer group, before and after its coordinator has moved."""

from __future__ import annotations

import pytest
from consumer_groups import CLIENT, REBALANCE_TIMEOUT_MS, GroupHarness, join_request, partitions_in, parts, topic

from tidelog_node.groups.settings import GroupSettings

SESSION_MS = GroupSettings().consumer_session_timeout_ms


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness(topic("a", 4))


def test_member_that_is_silent_for_its_session_is_removed(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.pass_time(SESSION_MS - 1)
    harness.beat("m2", 2)
    assert "m1" in harness.group.state.members
    harness.pass_time(1)
    assert set(harness.group.state.members) == {"m2"}
    assert harness.group.state_name == "Assigning"
    assert partitions_in(harness.beat("m2", 2).assignment) == parts("a", 0, 1, 2, 3)


def test_members_that_are_silent_together_are_removed_in_one_epoch(harness: GroupHarness) -> None:
    for member_id in ("m1", "m2", "m3"):
        harness.join(member_id, "a")
    harness.pass_time(SESSION_MS)
    assert harness.group.state_name == "Empty"
    assert harness.group.state.group_epoch == harness.group.state.assignment_epoch == 4
    assert harness.group.next_deadline_ms is None


def test_member_that_gives_nothing_up_is_removed_after_its_rebalance_timeout(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.beat("m1", 1)
    harness.pass_time(REBALANCE_TIMEOUT_MS - 1)
    harness.beat("m1", 1, parts("a", 0, 1, 2, 3))
    assert "m1" in harness.group.state.members
    harness.pass_time(1)
    assert set(harness.group.state.members) == {"m2"}


def test_member_that_gives_up_in_time_stays(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.beat("m1", 1)
    harness.beat("m1", 1, parts("a", 0, 1))
    harness.pass_time(REBALANCE_TIMEOUT_MS)
    assert set(harness.group.state.members) == {"m1", "m2"}


def test_member_that_waits_for_others_has_no_rebalance_timeout(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.pass_time(REBALANCE_TIMEOUT_MS)
    assert set(harness.group.state.members) == {"m1", "m2"}


def test_timeouts_begin_anew_at_another_coordinator(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.beat("m1", 1)
    harness.pass_time(REBALANCE_TIMEOUT_MS - 1)
    harness.group = harness.load()
    harness.pass_time(REBALANCE_TIMEOUT_MS - 1)
    assert set(harness.group.state.members) == {"m1", "m2"}
    harness.pass_time(1)
    assert set(harness.group.state.members) == {"m2"}
    harness.pass_time(SESSION_MS)
    assert harness.group.is_empty


def test_rebalance_timeout_begins_with_the_first_heartbeat_at_another_coordinator(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.beat("m1", 1)
    harness.group = harness.load()
    harness.beat("m1", 1, parts("a", 0, 1, 2, 3))
    harness.pass_time(REBALANCE_TIMEOUT_MS)
    assert set(harness.group.state.members) == {"m2"}


def test_removal_before_the_first_heartbeat_leaves_one_epoch_to_come(harness: GroupHarness) -> None:
    # The new coordinator knows no topics before the first heartbeat: it must not take them for gone.
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.group = harness.load()
    harness.pass_time(1)
    harness.write(harness.expire(harness.now_ms + SESSION_MS))
    assert harness.group.is_empty
    assert harness.group.state.group_epoch == 3
    harness.join("m3", "a")
    assert harness.group.state.group_epoch == 4


def test_removal_that_could_not_be_written_is_tried_again_after_a_session(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.now_ms += SESSION_MS
    assert harness.expire(harness.now_ms).records
    assert not harness.expire(harness.now_ms).records
    harness.pass_time(SESSION_MS)
    assert harness.group.is_empty


def test_member_that_could_not_be_written_has_no_session(harness: GroupHarness) -> None:
    assert harness.group.heartbeat(join_request("m1", "a"), CLIENT, harness.topics, harness.now_ms).records
    assert not harness.expire(harness.now_ms + SESSION_MS).records
    assert harness.group.next_deadline_ms is None


def test_rebalance_timeout_that_could_not_be_written_removes_nobody(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.join("m2", "a")
    request = join_request("m1", "a")
    request.member_epoch = 1
    request.ClearField("topic_partitions")
    assert harness.group.heartbeat(request, CLIENT, harness.topics, harness.now_ms).records
    harness.pass_time(REBALANCE_TIMEOUT_MS)
    assert set(harness.group.state.members) == {"m1", "m2"}
