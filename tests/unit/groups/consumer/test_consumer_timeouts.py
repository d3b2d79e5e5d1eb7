"""Sessions and rebalance timeouts of a consumer group, before and after its coordinator has moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from consumer_groups import CLIENT, REBALANCE_TIMEOUT_MS, GroupHarness, join_request, partitions_in, parts, topic

from tidelog_node.groups.settings import ConsumerTimings, GroupSettings, OwnTimings

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
    request = replace(join_request("m1", "a"), member_epoch=1, topic_partitions=None)
    assert harness.group.heartbeat(request, CLIENT, harness.topics, harness.now_ms).records
    harness.pass_time(REBALANCE_TIMEOUT_MS)
    assert set(harness.group.state.members) == {"m1", "m2"}


def test_member_is_told_and_held_to_what_is_set_on_its_group_from_its_next_heartbeat_on(harness: GroupHarness) -> None:
    assert harness.join("m1", "a").heartbeat_interval_ms == GroupSettings().consumer_heartbeat_interval_ms
    harness.group.change_settings(GroupSettings(own_timings={"g": OwnTimings(50_000, 6_000)}))
    assert harness.beat("m1", 1).heartbeat_interval_ms == 6_000
    harness.pass_time(49_999)
    assert "m1" in harness.group.state.members
    harness.pass_time(1)
    assert "m1" not in harness.group.state.members


def test_session_that_has_begun_ends_when_it_was_to_end(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.group.change_settings(GroupSettings(own_timings={"g": OwnTimings(60_000)}))
    harness.pass_time(SESSION_MS)
    assert "m1" not in harness.group.state.members


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (OwnTimings(), ConsumerTimings(45_000, 5_000)),
        (OwnTimings(60_000), ConsumerTimings(60_000, 5_000)),
        (OwnTimings(None, 15_000), ConsumerTimings(45_000, 15_000)),
        (OwnTimings(1, 1), ConsumerTimings(45_000, 5_000)),
        (OwnTimings(90_000, 90_000), ConsumerTimings(60_000, 15_000)),
    ],
)
def test_timings_of_a_group_are_within_the_coordinators_limits(own: OwnTimings, expected: ConsumerTimings) -> None:
    settings = GroupSettings(own_timings={"g": own})
    assert settings.timings_of("g") == expected
    assert settings.timings_of("other") == ConsumerTimings(45_000, 5_000)


def test_timings_of_a_group_that_would_expire_between_heartbeats_are_the_coordinators() -> None:
    settings = GroupSettings(
        consumer_min_session_timeout_ms=1,
        consumer_min_heartbeat_interval_ms=1,
        own_timings={"g": OwnTimings(5_000, 5_000)},
    )
    assert settings.timings_of("g") == ConsumerTimings(45_000, 5_000)
