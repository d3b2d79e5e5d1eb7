"""Heartbeats that are wrong by themselves, and what others may ask of a consumer group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from consumer_groups import GroupHarness, join_request, owned_topics, parts, refused, topic

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.settings import GroupSettings


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness(topic("a", 4), topic("b", 2))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"member_id": ""}, "member_id must have from 1 to 249 characters, and has 0"),
        ({"member_id": "m" * 250}, "member_id must have from 1 to 249 characters, and has 250"),
        ({"group_id": ""}, "group_id must not be empty"),
        ({"group_instance_id": ""}, "group_instance_id must have from 1 to 249 characters"),
        ({"rack_id": ""}, "rack_id must have from 1 to 249 characters"),
        ({"rebalance_timeout_ms": None}, "rebalance_timeout_ms must be given when a member joins"),
        ({"rebalance_timeout_ms": 0}, "rebalance_timeout_ms must be above 0, and is 0"),
        ({"topic_partitions": None}, "topic_partitions must be given and empty when a member joins"),
        (
            {"topic_partitions": owned_topics(parts("a", 0))},
            "topic_partitions must be given and empty when a member joins",
        ),
        (
            {"subscribed_topic_names": None},
            "subscribed_topic_names or subscribed_topic_regex must be given when a member joins",
        ),
        ({"member_epoch": -2}, "group_instance_id must be given with member_epoch -2"),
        ({"member_epoch": -3}, "member_epoch must be at least -2, and is -3"),
    ],
)
def test_heartbeat_is_refused_with_the_value_and_the_limit(
    harness: GroupHarness, change: dict[str, Any], why: str
) -> None:
    request = replace(join_request("m1", "a"), **change)
    with refused(ErrorCode.INVALID_REQUEST, why):
        harness.send(request)


def test_heartbeat_with_an_assignor_that_there_is_not_is_refused(harness: GroupHarness) -> None:
    with refused(ErrorCode.UNSUPPORTED_ASSIGNOR, "'sticky' is not supported; there are uniform, range"):
        harness.join("m1", "a", assignor="sticky")
    harness = GroupHarness(settings=GroupSettings(consumer_assignors=("range",)))
    with refused(ErrorCode.UNSUPPORTED_ASSIGNOR, "'uniform' is not supported; there are range"):
        harness.join("m1", "a", assignor="uniform")


def test_offsets_are_committed_by_members_with_their_epoch(harness: GroupHarness) -> None:
    harness.join("m1", "a", instance_id="i1")
    harness.group.check_commit("m1", 1)
    harness.group.check_commit("m1", 1, "i1")
    with refused(ErrorCode.STALE_MEMBER_EPOCH, "member m1 of group g has epoch 1, not 0"):
        harness.group.check_commit("m1", 0)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID, "'m2' is no member of group g"):
        harness.group.check_commit("m2", 1)
    with refused(ErrorCode.FENCED_INSTANCE_ID, "member m1 has taken the instance id i1 of member m2"):
        harness.group.check_commit("m2", 1, "i1")


def test_offsets_are_committed_by_nobody_only_while_the_group_is_empty(harness: GroupHarness) -> None:
    harness.group.check_commit("", -1)
    harness.join("m1", "a")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        harness.group.check_commit("", -1)
    harness.beat("m1", -1)
    harness.group.check_commit("", -1)


def test_offsets_are_fetched_by_nobody_or_by_members_with_their_epoch(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.group.check_fetch(None, -1)
    harness.group.check_fetch("m1", 1)
    with refused(ErrorCode.STALE_MEMBER_EPOCH):
        harness.group.check_fetch("m1", 2)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        harness.group.check_fetch("m2", 1)
    with refused(ErrorCode.UNKNOWN_MEMBER_ID):
        harness.group.check_fetch(None, 1)


def test_group_says_what_its_members_subscribe_to(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    assert harness.group.is_subscribed_to("a")
    assert not harness.group.is_subscribed_to("b")
    harness.beat("m1", 1, names=["b"])
    assert not harness.group.is_subscribed_to("a")
    harness.beat("m1", -1)
    assert not harness.group.is_subscribed_to("b")


def test_group_is_deleted_when_it_is_empty(harness: GroupHarness) -> None:
    harness.join("m1", "a", regex="b.*")
    with refused(ErrorCode.NON_EMPTY_GROUP, "group g has 1 members"):
        harness.group.check_delete()
    harness.beat("m1", -1)
    harness.group.check_delete()
    for key, value in harness.group.tombstones():
        harness.group.replay(key, value)
    assert harness.group.is_deleted
    assert harness.group.state_name == "Dead"


def test_tombstones_delete_every_record_of_a_group(harness: GroupHarness) -> None:
    harness.join("m1", "a", regex="b.*", instance_id="i1")
    harness.join("m2", "a")
    live = {key for key, value in {r.key: r.value for r in harness.log}.items() if value is not None}
    before = len(harness.log)
    for key, value in harness.group.tombstones():
        assert value is None
        harness.write_record(key, value)
    assert {record.key for record in harness.log[before:]} >= live
    assert harness.load().is_deleted


def test_description_shows_members_with_what_they_own_and_are_to_own(harness: GroupHarness) -> None:
    harness.join("m1", "a", instance_id="i1")
    harness.join("m2", "a", regex="b.*")
    described = harness.group.describe()
    assert (described.group_id, described.group_state) == ("g", "Reconciling")
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "uniform")
    first, second = described.members
    assert (first.member_id, first.group_instance_id, first.member_epoch) == ("m1", "i1", 1)
    assert (first.client_id, first.client_host) == ("client", "host")
    assert [(t.topic_name, list(t.partitions)) for t in first.assignment] == [("a", [0, 1, 2, 3])]
    assert [(t.topic_name, list(t.partitions)) for t in first.target_assignment] == [("a", [0, 1, 2])]
    assert second.group_instance_id is None
    assert (list(second.subscribed_topic_names), second.subscribed_topic_regex) == (["a"], "b.*")
    assert [(t.topic_name, list(t.partitions)) for t in second.assignment] == [("b", [0, 1])]
    without_a = harness.group.describe({"b": topic("b", 2)})
    assert not without_a.members[0].assignment


def test_group_without_records_is_dead() -> None:
    group = ConsumerGroup("g", GroupSettings())
    assert (group.group_id, group.state_name, group.is_deleted) == ("g", "Dead", True)
