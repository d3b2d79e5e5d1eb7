"""OffsetCommit, OffsetFetch and OffsetDelete (Kafka's OffsetMetadataManagerTest)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    fetched_offsets,
    join_new,
    join_request,
    stable_group,
    subscription,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.messages import (
    ListGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetFetchGroup,
)
from tidelog_node.groups.records import OffsetCommitKey, OffsetCommitValue
from tidelog_node.groups.settings import GroupSettings


def commit_code(answer: Any) -> ErrorCode:
    (code,) = {code_of(partition) for topic in answer.topics for partition in topic.partitions}
    return code


def is_committed(answer: Any) -> bool:
    return not any(partition.error is not None for topic in answer.topics for partition in topic.partitions)


def test_commit_without_a_group_makes_a_simple_one(harness: ShardHarness) -> None:
    topic = OffsetCommitTopic("t", (OffsetCommitPartition(0, 5, committed_leader_epoch=3, committed_metadata="m"),))
    request = replace(commit_request({}), topics=(topic,))
    assert is_committed(harness.call(request))
    assert harness.log == [(OffsetCommitKey("g", "t", 0), OffsetCommitValue(5, 3, "m", harness.now_ms))]
    answer = harness.call(OffsetFetchGroup(group_id="g", topics=(TopicPartitions(name="t", partitions=(0, 1)),)))
    found, missing = answer.topics[0].partitions
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (5, 3, "m")
    assert (missing.committed_offset, missing.committed_leader_epoch, missing.metadata) == (-1, -1, "")
    assert missing.error is None


def test_commit_with_a_generation_is_refused_where_there_is_no_group(harness: ShardHarness) -> None:
    answer = harness.call(commit_request({("t", 0): 5, ("u", 1): 6}, member_id="m", generation=1))
    assert commit_code(answer) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_that_there_is_not_are_minus_one(harness: ShardHarness) -> None:
    assert fetched_offsets(harness) == {}
    named = OffsetFetchGroup(group_id="g", topics=(TopicPartitions(name="t", partitions=(0,)),))
    assert harness.call(named).topics[0].partitions[0].committed_offset == -1
    assert not harness.call(ListGroupsRequest()).groups


def test_commit_of_a_member_is_of_its_generation(harness: ShardHarness) -> None:
    generation, (leader,) = stable_group(harness)
    offsets = {("t", 0): 5}
    assert is_committed(harness.call(commit_request(offsets, member_id=leader, generation=generation)))
    wrong = [
        (commit_request(offsets, member_id=leader, generation=generation - 1), ErrorCode.ILLEGAL_GENERATION),
        (commit_request(offsets, member_id=leader, generation=generation + 1), ErrorCode.ILLEGAL_GENERATION),
        (commit_request(offsets, member_id="nobody", generation=generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (commit_request(offsets), ErrorCode.UNKNOWN_MEMBER_ID),
        (
            commit_request(offsets, member_id=leader, generation=generation, instance="nobody"),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ]
    for request, code in wrong:
        assert commit_code(harness.call(request)) is code


def test_commit_is_refused_while_the_group_awaits_its_assignment(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000)
    answer = harness.call(commit_request({("t", 0): 5}, member_id=member_id, generation=1))
    assert commit_code(answer) is ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_is_good_while_the_group_rebalances_and_keeps_the_member_alive(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    harness.send(join_request(leader))
    for offset in range(4):
        harness.pass_time(9_000)
        request = commit_request({("t", 0): offset}, member_id=follower, generation=generation)
        assert is_committed(harness.call(request))


def test_commit_is_answered_and_seen_when_it_is_committed(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    harness.holds_commits = True
    call = harness.send(commit_request({("t", 0): 6}))
    assert call not in harness.responses
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.commit()
    assert is_committed(harness.responses[call])
    assert fetched_offsets(harness) == {("t", 0): 6}


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_commit_that_cannot_be_written_says_so_and_is_not_seen(
    harness: ShardHarness, failure: ErrorCode, answer: ErrorCode
) -> None:
    harness.fails_writes = failure
    assert commit_code(harness.call(commit_request({("t", 0): 5}))) is answer
    assert fetched_offsets(harness) == {}
    assert not harness.call(ListGroupsRequest()).groups


def test_commit_of_which_nothing_is_known_is_seen_once_the_store_has_it(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    harness.holds_commits = True
    call = harness.send(commit_request({("t", 0): 6}))
    write = harness.uncommitted[0]
    harness.fail_written(ErrorCode.REQUEST_TIMED_OUT)
    assert commit_code(harness.responses[call]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched_offsets(harness) == {("t", 0): 5}
    harness.store.apply(write.records)
    assert fetched_offsets(harness) == {("t", 0): 6}


def test_commit_of_some_partitions_is_refused_for_the_others() -> None:
    harness = ShardHarness(GroupSettings(offset_metadata_max_bytes=4))
    harness.set_topics(t=2)
    request = commit_request({("t", 0): 1, ("t", 1): 1, ("t", 2): 1, ("u", 0): 1}, metadata="abcd")
    first, second, third = request.topics[0].partitions
    topic = OffsetCommitTopic("t", (first, replace(second, committed_metadata="abcde"), third))
    request = replace(request, topics=(topic, request.topics[1]))
    good, large, absent = harness.call(request).topics[0].partitions
    assert good.error is None
    assert code_of(large) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert code_of(absent) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(harness.call(request).topics[1].partitions[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched_offsets(harness) == {("t", 0): 1}


def test_commit_of_nothing_is_answered_at_once(harness: ShardHarness) -> None:
    harness.holds_commits = True
    assert not harness.call(commit_request({})).topics
    assert not harness.log


def test_offsets_survive_the_coordinator(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5, ("u", 3): 7}))
    harness.holds_commits = True
    harness.send(commit_request({("t", 0): 6}))
    harness.reload()
    assert fetched_offsets(harness) == {("t", 0): 5, ("u", 3): 7}


def test_members_may_not_be_told_from_others_when_they_fetch(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    request = OffsetFetchGroup(group_id="g", member_id="m", member_epoch=7, all_topics=True)
    [(_, value)] = harness.call(request).committed
    assert value.offset == 5


def delete_request(*partitions: int, topic: str = "t") -> OffsetDeleteRequest:
    return OffsetDeleteRequest(group_id="g", topics=(TopicPartitions(name=topic, partitions=partitions),))


def test_offsets_are_deleted_of_an_empty_group(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5, ("t", 1): 6}))
    harness.holds_commits = True
    call = harness.send(delete_request(0, 9))
    assert fetched_offsets(harness) == {("t", 0): 5, ("t", 1): 6}
    harness.commit()
    assert is_committed(harness.responses[call])
    assert fetched_offsets(harness) == {("t", 1): 6}
    assert harness.log[-1] == (OffsetCommitKey("g", "t", 0), None)


def test_deletion_of_offsets_is_refused_where_there_is_no_group(harness: ShardHarness) -> None:
    assert code_of(harness.call(delete_request(0))) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_topic_that_members_read_are_not_deleted(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5, ("u", 0): 6}))
    _, call = join_new(harness, protocols=[("range", subscription("t", "x"))])
    harness.pass_time(3_000)
    assert code_of(harness.call(delete_request(0)).topics[0].partitions[0]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert is_committed(harness.call(delete_request(0, topic="u")))
    assert fetched_offsets(harness) == {("t", 0): 5}
    assert harness.responses[call].generation_id == 1


def test_offsets_are_not_deleted_while_what_members_read_is_not_known(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    stable_group(harness)
    assert code_of(harness.call(delete_request(0)).topics[0].partitions[0]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_members_that_are_no_consumers_are_not_deleted(harness: ShardHarness) -> None:
    _, call = join_new(harness, protocol_type="connect")
    harness.pass_time(3_000)
    assert harness.responses[call].generation_id == 1
    assert code_of(harness.call(delete_request(0))) is ErrorCode.NON_EMPTY_GROUP


def test_deletion_of_offsets_deletes_a_commit_that_is_under_way(harness: ShardHarness) -> None:
    harness.holds_commits = True
    harness.send(commit_request({("t", 0): 5}))
    harness.send(delete_request(0))
    harness.commit()
    assert fetched_offsets(harness) == {}


def test_deletion_of_offsets_that_cannot_be_written_says_so(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 5}))
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(harness.call(delete_request(0))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert fetched_offsets(harness) == {("t", 0): 5}


def test_sync_and_commits_of_one_group_are_committed_in_their_order(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000)
    harness.call(sync_request(member_id, 1, {member_id: b"a"}))
    harness.holds_commits = True
    calls = [harness.send(commit_request({("t", 0): offset}, member_id=member_id, generation=1)) for offset in range(3)]
    for number, call in enumerate(calls):
        harness.commit(1)
        assert is_committed(harness.responses[call])
        assert fetched_offsets(harness) == {("t", 0): number}
