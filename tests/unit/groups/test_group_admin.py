"""ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups (GroupCoordinatorServiceTest, ...ShardTest)."""

from __future__ import annotations

from group_shards import (
    CLIENT,
    START_MS,
    ShardHarness,
    TransactionalStore,
    code_of,
    commit_request,
    fetched_offsets,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    stable_group,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog_node.groups.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue, encode


def listed(harness: ShardHarness, *states: str, types: tuple[str, ...] = ()) -> list[tuple[str, str, str, str]]:
    answer = harness.call(ListGroupsRequest(states_filter=states, types_filter=types))
    return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups]


def deleted(harness: ShardHarness, *group_ids: str) -> list[ErrorCode | None]:
    answer = harness.call(DeleteGroupsRequest(group_ids=group_ids))
    assert [group.group_id for group in answer.groups] == list(group_ids)
    return [code_of(group) if group.error is not None else None for group in answer.groups]


def test_list_shows_groups_by_state_and_type(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 1}, group="simple"))
    stable_group(harness)
    join_new(harness, group="new")
    stable = ("g", "consumer", "Stable", "classic")
    simple = ("simple", "", "Empty", "classic")
    new = ("new", "consumer", "PreparingRebalance", "classic")
    assert listed(harness) == [stable, new, simple]
    assert listed(harness, "stable", "EMPTY") == [stable, simple]
    assert listed(harness, "Dead") == []
    assert listed(harness, types=("Classic",)) == [stable, new, simple]
    assert listed(harness, types=("consumer",)) == []
    harness.reload()
    assert listed(harness) == [stable, simple]


def test_describe_shows_members_with_their_assignments_when_the_group_is_stable(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    (group,) = harness.call(DescribeGroupsRequest(group_ids=("g",))).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.member_assignment) == (leader, leader.encode())
    assert (member.client_id, member.client_host) == (CLIENT.client_id, CLIENT.host)
    harness.send(join_request(leader))
    (group,) = harness.call(DescribeGroupsRequest(group_ids=("g",))).groups
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert group.members[0].member_assignment == b""


def test_groups_that_there_are_not_are_dead(harness: ShardHarness) -> None:
    (group,) = harness.call(DescribeGroupsRequest(group_ids=("g",))).groups
    assert code_of(group) is ErrorCode.GROUP_ID_NOT_FOUND
    assert group.group_state == "Dead"
    (consumer,) = harness.call(ConsumerGroupDescribeRequest(group_ids=("g",))).groups
    assert code_of(consumer) is ErrorCode.GROUP_ID_NOT_FOUND


def test_classic_groups_are_not_described_as_consumer_groups(harness: ShardHarness) -> None:
    stable_group(harness)
    (group,) = harness.call(ConsumerGroupDescribeRequest(group_ids=("g",))).groups
    assert code_of(group) is ErrorCode.GROUP_ID_NOT_FOUND
    assert "not a consumer group" in group.error.message


def test_delete_removes_empty_groups_with_their_offsets_and_no_others(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 1, ("t", 1): 2}, group="simple"))
    _, (leader,) = stable_group(harness)
    assert deleted(harness, "simple", "g", "none") == [
        None,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert fetched_offsets(harness, "simple") == {}
    harness.call(leave_request(leader))
    assert deleted(harness, "g") == [None]
    assert harness.log[-1] == (GroupMetadataKey("g"), None)
    assert listed(harness) == []
    assert list(harness.store.ids()) == []


def test_delete_is_answered_when_all_of_it_is_committed(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 1}, group="a"))
    harness.call(commit_request({("t", 0): 1}, group="b"))
    harness.holds_commits = True
    call = harness.send(DeleteGroupsRequest(group_ids=("a", "b")))
    harness.commit(1)
    assert call not in harness.responses
    harness.commit(1)
    assert not any(group.error is not None for group in harness.responses[call].groups)


def test_delete_deletes_a_commit_that_is_under_way(harness: ShardHarness) -> None:
    harness.holds_commits = True
    harness.send(commit_request({("t", 0): 1}))
    harness.send(DeleteGroupsRequest(group_ids=("g",)))
    assert (OffsetCommitKey("g", "t", 0), None) in harness.log
    harness.commit()
    assert listed(harness) == []


def test_delete_that_cannot_be_written_leaves_the_group(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 1}))
    harness.fails_writes = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert deleted(harness, "g") == [ErrorCode.NOT_COORDINATOR]
    assert fetched_offsets(harness) == {("t", 0): 1}


def test_delete_of_which_nothing_is_known_leaves_the_group_to_the_store(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    harness.call(leave_request(leader))
    harness.holds_commits = True
    call = harness.send(DeleteGroupsRequest(group_ids=("g",)))
    harness.fail_written(ErrorCode.REQUEST_TIMED_OUT)
    assert code_of(harness.responses[call].groups[0]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert listed(harness) == [("g", "consumer", "Empty", "classic")]


def test_member_that_joins_while_the_deletion_is_under_way_begins_a_new_group(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    harness.call(leave_request(leader))
    harness.holds_commits = True
    harness.send(DeleteGroupsRequest(group_ids=("g",)))
    member_id, call = join_new(harness)
    harness.commit()
    harness.pass_time(3_000)
    assert harness.responses[call].generation_id == 1
    assert harness.call(heartbeat_request(member_id, 1)).error is None


def test_delete_of_a_group_to_which_nothing_was_written(harness: ShardHarness) -> None:
    harness.call(join_request())
    assert deleted(harness, "g") == [None]
    assert listed(harness) == []
    assert not harness.log


def test_delete_names_a_group_once(harness: ShardHarness) -> None:
    harness.call(commit_request({("t", 0): 1}))
    assert len(harness.call(DeleteGroupsRequest(group_ids=("g", "g"))).groups) == 1


def test_delete_of_no_groups_is_answered(harness: ShardHarness) -> None:
    assert not harness.call(DeleteGroupsRequest()).groups


def many_groups(count: int) -> ShardHarness:
    value = OffsetCommitValue(1, -1, "", START_MS)
    records = [encode(OffsetCommitKey(f"g{number}", "t", 0), value) for number in range(count)]
    return ShardHarness(store=TransactionalStore(records))


def test_list_of_many_groups_lets_other_calls_come_in_between() -> None:
    harness = many_groups(350)
    call = harness.send(ListGroupsRequest())
    assert call not in harness.responses
    assert fetched_offsets(harness, "g7") == {("t", 0): 1}
    harness.pass_time(0)
    names = [group.group_id for group in harness.responses[call].groups]
    assert names == sorted(f"g{number}" for number in range(350))


def test_list_of_many_groups_ends_when_nobody_waits_for_it() -> None:
    harness = many_groups(350)
    calls = [harness.send(ListGroupsRequest()) for _ in range(2)]
    harness.abandon(calls[0])
    harness.pass_time(0)
    assert calls[0] not in harness.responses
    assert len(harness.responses[calls[1]].groups) == 350
    assert harness.shard.next_deadline_ms > harness.now_ms


def test_delete_of_a_group_with_very_many_offsets_is_written_in_parts(harness: ShardHarness) -> None:
    for number in range(4):
        harness.call(commit_request({("t" * 100 + str(number), index): 1 for index in range(1_000)}))
    harness.holds_commits = True
    call = harness.send(DeleteGroupsRequest(group_ids=("g",)))
    sizes = [sum(len(record.key) for record in write.records) for write in harness.uncommitted]
    assert len(sizes) > 1
    assert max(sizes) < 200_000
    harness.commit(len(sizes) - 1)
    assert call not in harness.responses
    harness.commit()
    assert harness.responses[call].groups[0].error is None
    assert list(harness.store.ids()) == []
