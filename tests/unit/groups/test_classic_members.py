"""Heartbeat, LeaveGroup, sessions, and what another coordinator finds (GroupMetadataManagerTest)."""

from __future__ import annotations

from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    stable_group,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import DescribeGroupsRequest, LeaveGroupRequest, LeavingMember
from tidelog_node.groups.records import GroupMetadataValue


def state_of(harness: ShardHarness) -> str:
    return str(harness.call(DescribeGroupsRequest(group_ids=("g",))).groups[0].group_state)


def test_heartbeat_is_refused_from_unknown_members_and_other_generations(harness: ShardHarness) -> None:
    assert code_of(harness.call(heartbeat_request("nobody", 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(harness.call(heartbeat_request("m", 1, group=""))) is ErrorCode.INVALID_GROUP_ID
    generation, (leader,) = stable_group(harness)
    assert code_of(harness.call(heartbeat_request("nobody", generation))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(harness.call(heartbeat_request(leader, generation + 1))) is ErrorCode.ILLEGAL_GENERATION
    unknown = heartbeat_request(leader, generation, instance="nobody")
    assert code_of(harness.call(unknown)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_is_good_while_the_group_awaits_its_assignment(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000)
    assert harness.call(heartbeat_request(member_id, 1)).error is None


def test_heartbeats_keep_a_member_and_silence_ends_it(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    for _ in range(5):
        harness.pass_time(9_999)
        for member_id in (leader, follower):
            assert harness.call(heartbeat_request(member_id, generation)).error is None
    harness.pass_time(5_000)
    harness.call(heartbeat_request(leader, generation))
    harness.pass_time(5_000)
    assert code_of(harness.call(heartbeat_request(follower, generation))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(harness.call(heartbeat_request(leader, generation))) is ErrorCode.REBALANCE_IN_PROGRESS


def test_group_whose_last_member_is_silent_is_empty_and_that_is_written(harness: ShardHarness) -> None:
    stable_group(harness)
    harness.pass_time(10_000)
    assert state_of(harness) == "Empty"
    value = harness.log[-1][1]
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, ())
    assert (value.protocol_type, value.current_state_timestamp) == ("consumer", harness.now_ms)


def test_last_member_that_leaves_makes_the_group_empty_and_the_next_begins_another_generation(
    harness: ShardHarness,
) -> None:
    _, (leader,) = stable_group(harness)
    assert harness.call(leave_request(leader)).members[0].error is None
    assert state_of(harness) == "Empty"
    assert stable_group(harness)[0] == 3


def test_leave_answers_each_member_for_itself(harness: ShardHarness) -> None:
    _, members = stable_group(harness, 2)
    answer = harness.call(leave_request(members[0], "nobody", members[1]))
    assert [m.error is not None for m in answer.members] == [False, True, False]
    assert code_of(answer.members[1]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert state_of(harness) == "Empty"


def test_leave_by_instance_id_removes_whoever_has_it(harness: ShardHarness) -> None:
    call = harness.send(join_request(instance="a"))
    harness.pass_time(3_000)
    request = LeaveGroupRequest(
        group_id="g",
        members=(LeavingMember("", "a"), LeavingMember("", "b"), LeavingMember("")),
    )
    answer = harness.call(request)
    assert answer.members[0].error is None
    assert [code_of(member) for member in answer.members[1:]] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    member_id = harness.responses[call].member_id
    assert code_of(harness.call(heartbeat_request(member_id, 1))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_of_a_member_that_was_only_given_an_id(harness: ShardHarness) -> None:
    _, (leader,) = stable_group(harness)
    pending = harness.call(join_request()).member_id
    call = harness.send(join_request(leader))
    assert call not in harness.responses
    assert harness.call(leave_request(pending)).members[0].error is None
    assert harness.responses[call].generation_id == 2


def test_leave_of_a_member_that_waits_for_the_rebalance_answers_its_call(harness: ShardHarness) -> None:
    member_id, call = join_new(harness)
    harness.call(leave_request(member_id))
    assert code_of(harness.responses[call]) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.pass_time(3_000)
    assert state_of(harness) == "Empty"


def test_leave_is_refused_where_there_is_no_group(harness: ShardHarness) -> None:
    assert code_of(harness.call(leave_request("m"))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_of_which_nobody_joined_leaves_nothing_behind(harness: ShardHarness) -> None:
    harness.call(join_request())
    assert state_of(harness) == "Empty"
    harness.pass_time(10_000)
    assert state_of(harness) == "Dead"
    assert not harness.log


def test_another_coordinator_finds_the_group_with_its_members_and_assignments(harness: ShardHarness) -> None:
    generation, members = stable_group(harness, 3)
    harness.reload()
    assert state_of(harness) == "Stable"
    for member_id in members:
        assert harness.call(sync_request(member_id, generation)).assignment == member_id.encode()
        assert harness.call(heartbeat_request(member_id, generation)).error is None


def test_members_have_their_session_timeout_anew_with_another_coordinator(harness: ShardHarness) -> None:
    generation, members = stable_group(harness, 2)
    harness.pass_time(9_000)
    harness.reload()
    harness.pass_time(9_999)
    assert harness.call(heartbeat_request(members[0], generation)).error is None
    harness.pass_time(1)
    assert code_of(harness.call(heartbeat_request(members[1], generation))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_that_nobody_asks_for_is_ended_by_another_coordinator(harness: ShardHarness) -> None:
    stable_group(harness, 2)
    harness.reload()
    before = len(harness.log)
    harness.pass_time(10_000)
    value = harness.log[before][1]
    assert isinstance(value, GroupMetadataValue)
    assert value.members == ()


def test_empty_group_whose_record_was_not_written_comes_back_with_another_coordinator(harness: ShardHarness) -> None:
    generation, (leader,) = stable_group(harness)
    harness.call(commit_request({("t", 0): 1}, member_id=leader, generation=generation))
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    assert harness.call(leave_request(leader)).members[0].error is None
    harness.pass_time(600_000)
    assert code_of(harness.call(heartbeat_request(leader, generation))) is ErrorCode.UNKNOWN_MEMBER_ID
    harness.fails_writes = None
    harness.reload()
    assert harness.call(heartbeat_request(leader, generation)).error is None


def test_abandoned_calls_are_not_answered(harness: ShardHarness) -> None:
    _, call = join_new(harness)
    harness.abandon(call)
    harness.pass_time(3_000)
    assert call not in harness.responses
    harness.abandon(call)
