"""Heartbeats of a consumer group: joins, epochs, subscriptions, assignments (Kafka's GroupMetadataManagerTest)."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from consumer_groups import CLIENT, GroupHarness, join_request, partitions_in, parts, refused, topic

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer.member import MemberState
from tidelog_node.groups.messages import ConsumerGroupHeartbeatRequest
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tidelog_node.groups.settings import GroupSettings

NOTHING: Assignment = frozenset()


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness(topic("a", 4), topic("b", 2))


def two_members(harness: GroupHarness) -> None:
    """m1 has joined first and has given up half of topic a, m2 has got it; both are at epoch 2."""
    harness.join("m1", "a")
    harness.join("m2", "a")
    harness.beat("m1", 1)
    harness.beat("m1", 1, parts("a", 0, 1))
    harness.beat("m2", 2)
    assert harness.group.state_name == "Stable"


def test_first_member_gets_all_partitions_of_its_topics(harness: GroupHarness) -> None:
    response = harness.join("m1", "a", "b", "nowhere")
    assert (response.member_id, response.member_epoch) == ("m1", 1)
    assert response.heartbeat_interval_ms == 5_000
    assert partitions_in(response.assignment) == parts("a", 0, 1, 2, 3) | parts("b", 0, 1)
    assert [type(key) for key, _ in harness.last_records] == [
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMetadataKey,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupCurrentMemberAssignmentKey,
    ]
    assert harness.group.state_name == "Stable"


def test_heartbeat_that_changes_nothing_writes_nothing_and_answers_without_an_assignment(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    response = harness.beat("m1", 1)
    assert response.assignment is None
    assert harness.last_records == []


def test_full_heartbeat_is_answered_with_the_assignment(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    request = replace(join_request("m1", "a"), member_epoch=1)
    assert partitions_in(harness.send(request).assignment) == parts("a", 0, 1, 2, 3)
    assert harness.last_records == []


def test_second_member_waits_until_the_first_has_given_up(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    joined = harness.join("m2", "a")
    assert joined.member_epoch == 2
    assert partitions_in(joined.assignment) == NOTHING
    assert harness.group.state_name == "Reconciling"
    told = harness.beat("m1", 1)
    assert told.member_epoch == 1
    assert partitions_in(told.assignment) == parts("a", 0, 1)
    assert harness.beat("m2", 2).assignment is None
    # It is still at it.
    assert harness.beat("m1", 1, parts("a", 0, 1, 2, 3)).member_epoch == 1
    assert harness.beat("m1", 1, parts("a", 0, 1)).member_epoch == 2
    assert partitions_in(harness.beat("m2", 2).assignment) == parts("a", 2, 3)
    assert harness.group.state_name == "Stable"


def test_member_that_subscribes_to_nothing_is_in_the_group(harness: GroupHarness) -> None:
    response = harness.join("m1")
    assert (response.member_epoch, partitions_in(response.assignment)) == (1, NOTHING)
    assert harness.group.state_name == "Stable"


def test_subscription_that_changes_begins_an_epoch(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    response = harness.beat("m1", 1, names=["b"])
    assert response.member_epoch == 1
    assert partitions_in(response.assignment) == NOTHING
    assert harness.group.state.group_epoch == 2
    assert partitions_in(harness.beat("m1", 1, NOTHING).assignment) == parts("b", 0, 1)


def test_subscription_that_is_said_again_in_another_order_begins_no_epoch(harness: GroupHarness) -> None:
    harness.join("m1", "a", "b")
    harness.beat("m1", 1, names=["b", "a", "b"])
    assert harness.last_records == []


def test_leaving_member_frees_its_partitions_at_once(harness: GroupHarness) -> None:
    two_members(harness)
    response = harness.beat("m1", -1)
    assert response.member_epoch == -1
    assert harness.group.state_name == "Assigning"
    assert partitions_in(harness.beat("m2", 2).assignment) == parts("a", 0, 1, 2, 3)
    assert harness.group.state.group_epoch == 3


def test_last_member_leaves_an_empty_group_whose_epochs_agree(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.beat("m1", -1)
    state = harness.group.state
    assert harness.group.state_name == "Empty"
    assert state.group_epoch == state.assignment_epoch == 2
    assert not state.targets
    assert harness.join("m2", "a").member_epoch == 3


@pytest.mark.parametrize("epoch", [1, -1])
def test_member_that_is_not_known_is_refused(harness: GroupHarness, epoch: int) -> None:
    harness.join("m1", "a")
    with refused(ErrorCode.UNKNOWN_MEMBER_ID, "'m2' is no member of group g"):
        harness.beat("m2", epoch)


def test_group_takes_no_more_members_than_it_may(harness: GroupHarness) -> None:
    harness = GroupHarness(topic("a", 4), settings=GroupSettings(consumer_max_size=1))
    harness.join("m1", "a")
    with refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "group g has 1 members, the most it may"):
        harness.join("m2", "a")
    harness.join("m1", "a")


def test_epoch_above_the_members_is_fenced(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    with refused(ErrorCode.FENCED_MEMBER_EPOCH, "member m1 has epoch 1, not 2"):
        harness.beat("m1", 2)


def test_epoch_before_is_taken_when_the_member_owns_no_more_than_it_was_given(harness: GroupHarness) -> None:
    two_members(harness)
    assert harness.group.state.members["m1"].previous_member_epoch == 1
    assert harness.beat("m1", 1, parts("a", 0)).member_epoch == 2
    for owned in (None, parts("a", 0, 2)):
        with refused(ErrorCode.FENCED_MEMBER_EPOCH):
            harness.beat("m1", 1, owned)


def test_epoch_two_before_is_fenced(harness: GroupHarness) -> None:
    two_members(harness)
    harness.join("m3", "b")
    harness.beat("m1", 2)
    with refused(ErrorCode.FENCED_MEMBER_EPOCH, "member m1 has epoch 3, not 1"):
        harness.beat("m1", 1, NOTHING)


@pytest.mark.parametrize("state", list(MemberState)[:3])
def test_member_may_join_again_in_any_state_and_owns_nothing_then(harness: GroupHarness, state: MemberState) -> None:
    # KAFKA-19233
    harness.join("m1", "a")
    harness.join("m2", "a")
    if state is not MemberState.STABLE:
        harness.beat("m1", 1)
    member_id = "m2" if state is MemberState.UNRELEASED_PARTITIONS else "m1"
    assert harness.group.state.members[member_id].state is state or member_id == "m1"
    response = harness.join(member_id, "a")
    assert response.member_epoch == 2
    expected = parts("a", 0, 1) if member_id == "m1" else NOTHING
    assert partitions_in(response.assignment) == expected
    assert harness.group.state.group_epoch == 2


def test_lost_answer_to_the_join_does_no_harm(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    again = harness.join("m1", "a")
    assert (again.member_epoch, partitions_in(again.assignment)) == (1, parts("a", 0, 1, 2, 3))
    assert harness.last_records == []


def test_topic_that_grows_begins_an_epoch_with_the_next_heartbeat(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.change_topics(topic("a", 5), topic("b", 2))
    response = harness.beat("m1", 1)
    assert (response.member_epoch, partitions_in(response.assignment)) == (2, parts("a", 0, 1, 2, 3, 4))


def test_topic_that_nobody_subscribes_to_begins_no_epoch(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.change_topics(topic("a", 4), topic("b", 7))
    harness.beat("m1", 1)
    assert harness.last_records == []


def test_topic_that_is_created_is_assigned_to_who_subscribed_before(harness: GroupHarness) -> None:
    harness.join("m1", "later")
    harness.change_topics(topic("later", 1))
    assert partitions_in(harness.beat("m1", 1).assignment) == parts("later", 0)


def test_topic_that_was_made_again_is_another(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.change_topics(topic("a", 4, number=1))
    assert partitions_in(harness.beat("m1", 1).assignment) == NOTHING
    new = frozenset((topic("a", 4, number=1).topic_id, index) for index in range(4))
    assert partitions_in(harness.beat("m1", 1, NOTHING).assignment) == new


def test_topics_are_looked_at_again_when_the_epoch_could_not_be_written(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.change_topics(topic("a", 5))
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=1)
    failed = harness.group.heartbeat(request, CLIENT, harness.topics, harness.now_ms)
    assert failed.records
    assert harness.send(request).member_epoch == 2


def test_regular_expression_subscribes_to_what_matches_now_and_later(harness: GroupHarness) -> None:
    harness.change_topics(topic("a.1", 1), topic("a.2", 1), topic("b", 1))
    joined = harness.join("m1", "b", regex=r"a\..*")
    assert partitions_in(joined.assignment) == parts("a.1", 0) | parts("a.2", 0) | parts("b", 0)
    assert harness.group.is_subscribed_to("a.2")
    harness.change_topics(topic("a.1", 1), topic("a.2", 1), topic("a.3", 1), topic("b", 1), topic("c", 1))
    response = harness.beat("m1", 1)
    assert response.member_epoch == 2
    assert parts("a.3", 0) <= partitions_in(response.assignment)
    assert not harness.group.is_subscribed_to("c")
    harness.change_topics(topic("a.3", 1), topic("c", 1))
    assert partitions_in(harness.beat("m1", 2).assignment) == parts("a.3", 0)


def test_regular_expression_is_looked_up_again_after_the_refresh_interval(harness: GroupHarness) -> None:
    topics = {"a1": topic("a1", 1)}
    harness.topics = MappingProxyType(topics)
    harness.join("m1", regex="a.*")
    harness.beat("m1", 1)
    # A change that nobody has told the group.
    topics["a2"] = topic("a2", 1)
    assert harness.beat("m1", 1).member_epoch == 1
    harness.now_ms += GroupSettings().consumer_regex_refresh_interval_ms
    assert partitions_in(harness.beat("m1", 1).assignment) == parts("a1", 0) | parts("a2", 0)


def test_regular_expression_is_deleted_with_its_last_member(harness: GroupHarness) -> None:
    harness.join("m1", regex="a.*")
    harness.join("m2", regex="a.*")
    harness.beat("m1", -1)
    assert "a.*" in harness.group.state.regular_expressions
    harness.beat("m2", -1)
    assert (ConsumerGroupRegularExpressionKey("g", "a.*"), None) in harness.last_records


def test_regular_expression_may_be_taken_back(harness: GroupHarness) -> None:
    harness.join("m1", "b", regex="a.*")
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m1", member_epoch=1, subscribed_topic_regex="", topic_partitions=()
    )
    assert partitions_in(harness.send(request).assignment) == parts("b", 0, 1)
    assert harness.group.state.members["m1"].metadata.subscribed_topic_regex is None


def test_regular_expression_that_is_invalid_is_refused(harness: GroupHarness) -> None:
    with refused(ErrorCode.INVALID_REGULAR_EXPRESSION, "the regular expression '[a' is invalid: missing ]"):
        harness.join("m1", regex="[a")
    assert harness.group.state_name == "Dead"


def test_assignor_of_most_members_assigns_and_the_first_of_the_settings_when_none_is(harness: GroupHarness) -> None:
    harness.change_topics(topic("a", 3), topic("b", 3))
    harness.join("m1", "a", "b")
    assert harness.group.describe().assignor_name == "uniform"
    harness.join("m2", "a", "b", assignor="range")
    assert harness.group.describe().assignor_name == "range"
    of_m1 = harness.group.state.targets["m1"]
    assert {index for name, index in of_m1 if name == topic("a", 1).topic_id} == {
        index for name, index in of_m1 if name == topic("b", 1).topic_id
    }
    harness.join("m3", "a", "b", assignor="uniform")
    harness.join("m4", "a", "b", assignor="uniform")
    assert harness.group.describe().assignor_name == "uniform"


def test_rack_and_client_that_change_are_written_and_begin_no_epoch(harness: GroupHarness) -> None:
    harness.join("m1", "a")
    harness.send(ConsumerGroupHeartbeatRequest(group_id="g", member_id="m1", member_epoch=1, rack_id="r1"))
    assert [type(key) for key, _ in harness.last_records] == [ConsumerGroupMemberMetadataKey]
    assert harness.group.describe().members[0].rack_id == "r1"
