"""TxnOffsetCommit, and OffsetFetch of stable offsets (Kafka's OffsetMetadataManagerTest; KIP-98, KIP-447)."""

from __future__ import annotations

from typing import Any

import pytest
from group_shards import (
    ShardHarness,
    commit_request,
    consumer_heartbeat_request,
    fetched_offsets,
    stable_group,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node.groups.messages import (
    DeleteGroupsRequest,
    OffsetCommitPartition,
    OffsetCommitTopic,
    OffsetDeleteRequest,
    OffsetFetchGroup,
    TxnOffsetCommitRequest,
)
from tidelog_node.groups.offsets.requests import result_in_steps

P0, P1 = ("t", 0), ("t", 1)


def code_of(response: Any) -> ErrorCode:
    return ErrorCode.NONE if response.error is None else response.error.code


def txn_commit(
    harness: ShardHarness, offsets: dict[tuple[str, int], int], producer_id: int = 7, **fields: Any
) -> list[ErrorCode]:
    topics = tuple(OffsetCommitTopic(t, (OffsetCommitPartition(p, offset),)) for (t, p), offset in offsets.items())
    answer = harness.call(TxnOffsetCommitRequest("tx", "g", producer_id, 0, topics=topics, guard=3, **fields))
    return [code_of(partition) for topic in answer.topics for partition in topic.partitions]


def fetch(harness: ShardHarness, *partitions: int, stable: bool = True) -> list[tuple[ErrorCode, int]]:
    request = OffsetFetchGroup("g", topics=(TopicPartitions("t", partitions),), require_stable=stable)
    return [(code_of(p), p.committed_offset) for p in harness.call(request).topics[0].partitions]


UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


def test_offsets_of_a_transaction_take_effect_when_it_is_committed(harness: ShardHarness) -> None:
    harness.call(commit_request({P0: 1, P1: 1}))
    assert txn_commit(harness, {P0: 5}) == [ErrorCode.NONE]
    assert fetch(harness, 0, 1) == [UNSTABLE, (ErrorCode.NONE, 1)]
    assert fetch(harness, 0, 1, stable=False) == [(ErrorCode.NONE, 1)] * 2
    harness.end_transaction(7, committed=True)
    assert fetch(harness, 0, 1) == [(ErrorCode.NONE, 5), (ErrorCode.NONE, 1)]


def test_offsets_of_an_aborted_transaction_are_gone(harness: ShardHarness) -> None:
    txn_commit(harness, {P0: 5})
    harness.end_transaction(7, committed=False)
    assert fetch(harness, 0) == [(ErrorCode.NONE, -1)]
    assert code_of(harness.call(DeleteGroupsRequest(("g",))).groups[0]) is ErrorCode.GROUP_ID_NOT_FOUND


def test_late_commit_of_a_transaction_on_an_older_connection_is_not_part_of_the_next_one(harness: ShardHarness) -> None:
    assert txn_commit(harness, {P0: 5}, connection_us=2) == [ErrorCode.NONE]
    harness.end_transaction(7, committed=False)
    assert txn_commit(harness, {P1: 6}, connection_us=2) == [ErrorCode.NONE]
    assert txn_commit(harness, {P0: 5}, connection_us=1) == [ErrorCode.NETWORK_EXCEPTION]
    harness.end_transaction(7, committed=True)
    assert fetch(harness, 0, 1) == [(ErrorCode.NONE, -1), (ErrorCode.NONE, 6)]


def test_write_carries_the_producer_and_its_guard(harness: ShardHarness) -> None:
    harness.holds_commits = True
    call = harness.send(TxnOffsetCommitRequest("tx", "g", 7, 2, topics=(topic_of(0),), guard=3))
    [write] = harness.uncommitted
    transaction = write.transaction
    assert transaction is not None
    assert (transaction.producer_id, transaction.producer_epoch, transaction.guard) == (7, 2, 3)
    assert call not in harness.responses
    assert fetch(harness, 0) == [UNSTABLE]
    harness.commit()
    assert code_of(harness.responses[call].topics[0].partitions[0]) is ErrorCode.NONE
    assert fetch(harness, 0) == [UNSTABLE]


def topic_of(partition: int, offset: int = 5) -> OffsetCommitTopic:
    return OffsetCommitTopic("t", (OffsetCommitPartition(partition, offset),))


def test_all_offsets_of_a_group_name_those_that_are_unstable(harness: ShardHarness) -> None:
    harness.call(commit_request({P0: 1, P1: 1}))
    txn_commit(harness, {P1: 5})
    found = harness.call(OffsetFetchGroup("g", all_topics=True, require_stable=True))
    steps = result_in_steps(found)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        [topic] = end.value.topics
    assert [(p.index, code_of(p), p.committed_offset) for p in topic.partitions] == [
        (0, ErrorCode.NONE, 1),
        (1, *UNSTABLE),
    ]
    assert not harness.call(OffsetFetchGroup("g", all_topics=True)).unstable


def test_later_commit_wins_over_the_transaction_that_ends_after_it(harness: ShardHarness) -> None:
    txn_commit(harness, {P0: 5, P1: 5})
    txn_commit(harness, {P1: 6}, producer_id=8)
    harness.call(commit_request({P0: 9}))
    assert fetch(harness, 0, 1) == [(ErrorCode.NONE, 9), UNSTABLE]
    harness.end_transaction(8, committed=True)
    assert fetch(harness, 1, stable=False) == [(ErrorCode.NONE, 6)]
    harness.end_transaction(7, committed=True)
    assert fetch(harness, 0, 1) == [(ErrorCode.NONE, 9), (ErrorCode.NONE, 6)]


def test_pending_offsets_survive_a_new_coordinator(harness: ShardHarness) -> None:
    txn_commit(harness, {P0: 5})
    harness.reload()
    assert fetch(harness, 0) == [UNSTABLE]
    harness.end_transaction(7, committed=True)
    assert fetch(harness, 0) == [(ErrorCode.NONE, 5)]


def test_group_with_pending_offsets_neither_expires_nor_loses_other_offsets_of_the_partition(
    harness: ShardHarness,
) -> None:
    harness.call(commit_request({P0: 1}))
    txn_commit(harness, {P0: 5})
    harness.pass_time(8 * 24 * 3_600_000)
    assert fetched_offsets(harness) == {P0: 1}
    harness.end_transaction(7, committed=False)
    harness.pass_time(3_600_000)
    assert fetched_offsets(harness) == {}


@pytest.mark.parametrize("deletes_group", [True, False])
def test_deletion_covers_pending_offsets(harness: ShardHarness, deletes_group: bool) -> None:
    txn_commit(harness, {P0: 5})
    if deletes_group:
        assert code_of(harness.call(DeleteGroupsRequest(("g",))).groups[0]) is ErrorCode.NONE
    else:
        harness.call(OffsetDeleteRequest("g", (TopicPartitions("t", (0,)),)))
    harness.end_transaction(7, committed=True)
    assert fetch(harness, 0) == [(ErrorCode.NONE, -1)]


def test_commit_for_a_topic_that_does_not_exist_is_refused_alone(harness: ShardHarness) -> None:
    harness.set_topics(t=1)
    assert txn_commit(harness, {P0: 5, P1: 5, ("none", 0): 5}) == [
        ErrorCode.NONE,
        *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
    ]


def test_offsets_of_a_topic_that_was_created_again_are_not_brought_back_by_an_abort(harness: ShardHarness) -> None:
    harness.set_topics(t=1)
    harness.call(commit_request({P0: 1}))
    harness.holds_commits = False
    harness.set_topics()
    harness.set_topics(t=1)
    txn_commit(harness, {P0: 5})
    harness.end_transaction(7, committed=False)
    harness.pass_time(0)
    assert fetch(harness, 0) == [(ErrorCode.NONE, -1)]


def test_members_of_another_generation_are_fenced(harness: ShardHarness) -> None:
    generation, [member] = stable_group(harness)
    assert txn_commit(harness, {P0: 5}, generation_id_or_member_epoch=generation, member_id=member) == [ErrorCode.NONE]
    for fields, code in [
        ({"generation_id_or_member_epoch": generation - 1, "member_id": member}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": generation, "member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": member, "group_instance_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert txn_commit(harness, {P0: 5}, **fields) == [code], fields
    assert txn_commit(harness, {P0: 5}) == [ErrorCode.NONE], "old clients name no member"


def test_generation_of_a_group_that_does_not_exist_is_illegal(harness: ShardHarness) -> None:
    assert txn_commit(harness, {P0: 5}, generation_id_or_member_epoch=1, member_id="m") == [
        ErrorCode.ILLEGAL_GENERATION
    ]


def test_stale_epoch_of_a_consumer_group_is_an_illegal_generation(harness: ShardHarness) -> None:
    harness.set_topics(t=2)
    joined = harness.call(consumer_heartbeat_request("m", 0, topics=("t",)))
    fields = {"member_id": "m", "generation_id_or_member_epoch": joined.member_epoch}
    assert txn_commit(harness, {P0: 5}, **fields) == [ErrorCode.NONE]
    fields["generation_id_or_member_epoch"] -= 1
    assert txn_commit(harness, {P0: 5}, **fields) == [ErrorCode.ILLEGAL_GENERATION]


def test_refused_write_leaves_nothing_pending(harness: ShardHarness) -> None:
    harness.fails_writes = ErrorCode.INVALID_TXN_STATE
    assert txn_commit(harness, {P0: 5}) == [ErrorCode.INVALID_TXN_STATE]
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    assert txn_commit(harness, {P0: 5}) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert fetch(harness, 0) == [(ErrorCode.NONE, -1)]
