"""Groups of KIP-848's protocol in a shard, and how an empty group changes its protocol (ConsumerGroupMigration...)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    consumer_heartbeat_request,
    fetched_offsets,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    stable_group,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetFetchGroup,
)
from tidelog_node.groups.records import ConsumerGroupMetadataKey, GroupMetadataKey, GroupMetadataValue


@pytest.fixture
def harness() -> ShardHarness:
    harness = ShardHarness()
    harness.set_topics(t=3, u=1)
    return harness


def partitions(answer: ConsumerGroupHeartbeatResponse) -> list[int]:
    return [partition for topic in answer.assignment for partition in topic.partitions]


def test_member_joins_at_once_and_is_told_its_partitions(harness: ShardHarness) -> None:
    answer = harness.call(consumer_heartbeat_request("m"))
    assert (answer.member_id, answer.member_epoch, partitions(answer)) == ("m", 1, [0, 1, 2])
    (group,) = harness.call(ConsumerGroupDescribeRequest(group_ids=("g",))).groups
    assert (group.group_state, [member.member_id for member in group.members]) == ("Stable", ["m"])
    (listing,) = harness.call(ListGroupsRequest(types_filter=("consumer",))).groups
    assert (listing.protocol_type, listing.group_type, listing.group_state) == ("consumer", "consumer", "Stable")


def test_heartbeat_is_answered_when_what_the_group_has_written_is_committed(harness: ShardHarness) -> None:
    harness.holds_commits = True
    join = harness.send(consumer_heartbeat_request("m"))
    again = harness.send(consumer_heartbeat_request("m", 1))
    assert not {join, again} & harness.responses.keys()
    harness.commit()
    assert harness.responses[join].member_epoch == harness.responses[again].member_epoch == 1
    assert harness.call(consumer_heartbeat_request("m", 1)).member_epoch == 1


def test_heartbeat_that_cannot_be_written_changes_nothing(harness: ShardHarness) -> None:
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(harness.call(consumer_heartbeat_request("m"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.fails_writes = None
    (group,) = harness.call(ConsumerGroupDescribeRequest(group_ids=("g",))).groups
    assert code_of(group) is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_survives_its_coordinator_and_members_have_their_session_anew(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    harness.pass_time(44_000)
    harness.reload()
    harness.set_topics(t=3, u=1)
    harness.pass_time(44_999)
    assert harness.call(consumer_heartbeat_request("m", 1)).member_epoch == 1
    harness.pass_time(45_000)
    assert code_of(harness.call(consumer_heartbeat_request("m", 1))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_are_those_of_the_members_epoch(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    offsets = {("t", 0): 5}
    assert harness.call(commit_request(offsets, member_id="m", generation=1)).topics[0].partitions[0].error is None
    stale = harness.call(commit_request(offsets, member_id="m", generation=0))
    assert code_of(stale.topics[0].partitions[0]) is ErrorCode.STALE_MEMBER_EPOCH
    nobody = harness.call(commit_request(offsets, member_id="x", generation=1))
    assert code_of(nobody.topics[0].partitions[0]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched_offsets(harness) == offsets
    fetch = OffsetFetchGroup(group_id="g", member_id="m", member_epoch=1, all_topics=True)
    [(_, value)] = harness.call(fetch).committed
    assert value.offset == 5
    assert harness.call(replace(fetch, member_epoch=0)).error.code is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_of_topics_that_members_read_are_not_deleted(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5, ("u", 0): 6}))
    harness.call(consumer_heartbeat_request("m"))
    request = OffsetDeleteRequest(
        group_id="g", topics=tuple(TopicPartitions(name=name, partitions=(0,)) for name in "tu")
    )
    answer = harness.call(request)
    assert code_of(answer.topics[0].partitions[0]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert fetched_offsets(harness) == {("t", 0): 5}


def test_group_is_deleted_when_it_is_empty(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    request = DeleteGroupsRequest(group_ids=("g",))
    assert code_of(harness.call(request).groups[0]) is ErrorCode.NON_EMPTY_GROUP
    assert harness.call(consumer_heartbeat_request("m", -1)).member_epoch == -1
    assert harness.call(request).groups[0].error is None
    assert list(harness.store.ids()) == []


def test_empty_group_without_offsets_is_deleted_at_the_next_check(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    harness.call(consumer_heartbeat_request("m", -1))
    harness.pass_time(600_000)
    assert list(harness.store.ids()) == []


def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(harness: ShardHarness) -> None:
    generation, (leader,) = stable_group(harness)
    harness.call(commit_request({("t", 0): 5}, member_id=leader, generation=generation))
    harness.call(leave_request(leader))
    before = len(harness.log)
    assert harness.call(consumer_heartbeat_request("m")).member_epoch == 1
    assert harness.log[before] == (GroupMetadataKey("g"), None)
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.reload()
    harness.set_topics(t=3, u=1)
    assert harness.call(consumer_heartbeat_request("m", 1)).member_epoch == 1


def test_simple_group_becomes_a_consumer_group(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    assert harness.call(consumer_heartbeat_request("m")).member_epoch == 1
    assert fetched_offsets(harness) == {("t", 0): 5}


def test_empty_consumer_group_becomes_a_classic_group(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    harness.call(consumer_heartbeat_request("m", -1))
    assert code_of(harness.call(join_request("m"))) is ErrorCode.UNKNOWN_MEMBER_ID
    member_id, call = join_new(harness)
    assert (ConsumerGroupMetadataKey("g"), None) in harness.log
    assert isinstance(harness.log[-1][1], GroupMetadataValue)
    harness.pass_time(3_000)
    assert harness.responses[call].generation_id == 1
    harness.call(sync_request(member_id, 1, {member_id: b"a"}))
    harness.reload()
    assert harness.call(sync_request(member_id, 1)).assignment == b"a"


def test_conversion_that_cannot_be_written_leaves_the_group(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    harness.call(consumer_heartbeat_request("m", -1))
    harness.fails_writes = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(harness.call(join_request())) is ErrorCode.NOT_COORDINATOR
    (listing,) = harness.call(ListGroupsRequest()).groups
    assert listing.group_type == "consumer"


def test_classic_member_that_cannot_join_a_converted_group_is_answered(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    harness.call(consumer_heartbeat_request("m", -1))
    assert code_of(harness.call(join_request(protocols=[]))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_of_the_consumer_protocol_are_unknown_to_the_calls_of_the_classic_one(harness: ShardHarness) -> None:
    harness.call(consumer_heartbeat_request("m"))
    assert code_of(harness.call(sync_request("m", 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(harness.call(heartbeat_request("m", 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    (group,) = harness.call(DescribeGroupsRequest(group_ids=("g",))).groups
    assert code_of(group) is ErrorCode.GROUP_ID_NOT_FOUND


def test_member_with_an_epoch_is_refused_where_there_is_no_group(harness: ShardHarness) -> None:
    assert code_of(harness.call(consumer_heartbeat_request("m", 1))) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not harness.call(ListGroupsRequest()).groups


def test_heartbeat_waits_until_the_topics_are_known() -> None:
    harness = ShardHarness()
    assert code_of(harness.call(consumer_heartbeat_request("m"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.set_topics(t=3)
    assert partitions(harness.call(consumer_heartbeat_request("m"))) == [0, 1, 2]
    harness.reload()
    assert code_of(harness.call(consumer_heartbeat_request("m", 1))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.set_topics(t=3)
    assert harness.call(consumer_heartbeat_request("m", 1)).member_epoch == 1, "no topic was deleted"
