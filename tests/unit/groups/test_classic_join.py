"""JoinGroup: who may join, and when the join phase ends (Kafka's GroupMetadataManagerTest, testJoinGroup...)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
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
from tidelog_node.groups.classic.joining import MAX_PENDING_JOINS
from tidelog_node.groups.messages import DeleteGroupsRequest
from tidelog_node.groups.settings import GroupSettings


def test_new_member_is_given_an_id_and_joins_with_it(harness: ShardHarness) -> None:
    member_id, call = join_new(harness)
    assert member_id.startswith("client-")
    assert call not in harness.responses
    harness.pass_time(2_999)
    assert call not in harness.responses
    harness.pass_time(1)
    answer = harness.responses[call]
    assert (answer.generation_id, answer.leader, answer.protocol_name) == (1, member_id, "range")
    assert [m.member_id for m in answer.members] == [member_id]


def test_initial_delay_is_longer_while_members_come_and_ends_at_the_rebalance_timeout(harness: ShardHarness) -> None:
    _, first = join_new(harness, rebalance_timeout_ms=8_000)
    calls = []
    for _ in range(4):
        harness.pass_time(1_999)
        calls.append(join_new(harness, rebalance_timeout_ms=8_000)[1])
    assert first not in harness.responses
    harness.pass_time(4)
    assert all(harness.responses[call].generation_id == 1 for call in [first, *calls])


def test_initial_delay_is_not_longer_when_no_time_is_left(harness: ShardHarness) -> None:
    _, first = join_new(harness, rebalance_timeout_ms=4_000)
    harness.pass_time(2_000)
    join_new(harness, rebalance_timeout_ms=4_000)
    harness.pass_time(1_500)
    join_new(harness, rebalance_timeout_ms=4_000)
    harness.pass_time(499)
    assert first not in harness.responses
    harness.pass_time(1)
    assert len(harness.responses[first].members) == 3


def test_session_begins_anew_with_the_answer_of_the_join(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000 + 9_999)
    assert harness.call(heartbeat_request(member_id, 1)).error is None
    harness.pass_time(10_000)
    assert code_of(harness.call(heartbeat_request(member_id, 1))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_member_is_gone_a_session_timeout_after_the_answer_of_its_join(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000 + 10_000)
    assert code_of(harness.call(heartbeat_request(member_id, 1))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_join_is_refused_with_a_session_timeout_out_of_bounds(harness: ShardHarness) -> None:
    for timeout_ms in (5_999, 1_800_001):
        answer = harness.call(join_request(session_timeout_ms=timeout_ms))
        assert code_of(answer) is ErrorCode.INVALID_SESSION_TIMEOUT
        assert str(timeout_ms) in answer.error.message


def test_join_is_refused_without_a_group_id(harness: ShardHarness) -> None:
    assert code_of(harness.call(join_request(group=""))) is ErrorCode.INVALID_GROUP_ID


def test_join_with_a_member_id_is_refused_by_a_group_that_does_not_know_it(harness: ShardHarness) -> None:
    assert code_of(harness.call(join_request("nobody"))) is ErrorCode.UNKNOWN_MEMBER_ID
    stable_group(harness)
    assert code_of(harness.call(join_request("nobody"))) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "options",
    [{"protocol_type": ""}, {"protocols": []}],
    ids=["no type", "no protocols"],
)
def test_join_is_refused_without_protocols_by_an_empty_group(harness: ShardHarness, options: dict[str, Any]) -> None:
    assert code_of(harness.call(join_request(**options))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "options",
    [{"protocol_type": "connect"}, {"protocols": [("sticky", b"")]}],
    ids=["other type", "no common protocol"],
)
def test_join_is_refused_with_protocols_that_not_all_can_use(harness: ShardHarness, options: dict[str, Any]) -> None:
    stable_group(harness)
    assert code_of(harness.call(join_request(**options))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_protocol_is_the_one_that_most_members_prefer_of_those_that_all_can_use(harness: ShardHarness) -> None:
    votes = [("roundrobin", "range", "own"), ("range", "roundrobin"), ("roundrobin", "range")]
    calls = [join_new(harness, protocols=[(name, b"") for name in names])[1] for names in votes]
    harness.pass_time(60_000)
    assert {harness.responses[call].protocol_name for call in calls} == {"roundrobin"}


def test_members_of_the_leader_have_the_metadata_of_the_chosen_protocol(harness: ShardHarness) -> None:
    _, call = join_new(harness, protocols=[("range", b"r"), ("sticky", b"s")])
    harness.pass_time(3_000)
    assert [member.metadata for member in harness.responses[call].members] == [b"r"]


def test_join_of_a_new_member_rebalances_until_all_have_joined_again(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    new, new_call = join_new(harness)
    assert code_of(harness.call(heartbeat_request(leader, generation))) is ErrorCode.REBALANCE_IN_PROGRESS
    leader_call = harness.send(join_request(leader))
    assert new_call not in harness.responses
    follower_call = harness.send(join_request(follower))
    answers = [harness.responses[call] for call in (new_call, leader_call, follower_call)]
    assert {(answer.generation_id, answer.leader) for answer in answers} == {(generation + 1, leader)}
    assert {member.member_id for member in answers[1].members} == {leader, follower, new}
    assert not answers[0].members
    assert not answers[2].members


def test_member_that_does_not_join_again_is_removed_at_the_rebalance_timeout(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    call = harness.send(join_request(leader))
    for _ in range(6):
        harness.pass_time(9_999)
        assert call not in harness.responses
        harness.call(heartbeat_request(follower, generation))
    harness.pass_time(10)
    assert [member.member_id for member in harness.responses[call].members] == [leader]
    assert code_of(harness.call(heartbeat_request(follower, generation))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_join_again_is_followed_by_a_member_that_has(harness: ShardHarness) -> None:
    _, (leader, follower) = stable_group(harness, 2)
    call = harness.send(join_request(follower, protocols=[("range", b"new")]))
    harness.pass_time(10_000)
    assert leader != follower == harness.responses[call].leader


def test_follower_that_joins_unchanged_is_told_the_stable_generation(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    answer = harness.call(join_request(follower))
    assert (answer.generation_id, answer.leader, len(answer.members)) == (generation, leader, 0)


def test_follower_that_joins_with_other_metadata_rebalances_a_stable_group(harness: ShardHarness) -> None:
    _, (leader, follower) = stable_group(harness, 2)
    call = harness.send(join_request(follower, protocols=[("range", b"new")]))
    assert call not in harness.responses
    harness.send(join_request(leader))
    assert harness.responses[call].generation_id == 2


def test_leader_that_joins_rebalances_a_stable_group(harness: ShardHarness) -> None:
    _, (leader, follower) = stable_group(harness, 2)
    call = harness.send(join_request(leader))
    harness.send(join_request(follower))
    assert harness.responses[call].generation_id == 2


def test_member_that_missed_its_answer_is_told_again_while_the_group_awaits_its_assignment(
    harness: ShardHarness,
) -> None:
    member_id, call = join_new(harness)
    harness.pass_time(3_000)
    assert harness.call(join_request(member_id)) == harness.responses[call]


def test_member_that_changes_while_the_group_awaits_its_assignment_rebalances_it(harness: ShardHarness) -> None:
    first, _ = join_new(harness)
    second, _ = join_new(harness)
    harness.pass_time(9_000)
    sync = harness.send(sync_request(second, 1))
    join = harness.send(join_request(first, protocols=[("range", b"new")]))
    assert code_of(harness.responses[sync]) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.send(join_request(second))
    assert harness.responses[join].generation_id == 2


def test_member_that_joins_twice_leaves_no_call_without_an_answer(harness: ShardHarness) -> None:
    member_id, first = join_new(harness)
    second = harness.send(join_request(member_id))
    assert code_of(harness.responses[first]) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.pass_time(6_000)
    assert harness.responses[second].generation_id == 1


def test_member_that_was_given_an_id_holds_the_join_phase_for_its_session_timeout(harness: ShardHarness) -> None:
    _, (member_id,) = stable_group(harness)
    harness.call(join_request())
    call = harness.send(join_request(member_id))
    harness.pass_time(9_999)
    assert call not in harness.responses
    harness.pass_time(1)
    assert harness.responses[call].generation_id == 2


def test_new_member_is_given_up_when_its_group_rebalances_for_ever(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    harness.send(join_request(leader, rebalance_timeout_ms=600_000))
    _, call = join_new(harness)
    for _ in range(31):
        harness.call(heartbeat_request(follower, generation))
        harness.pass_time(9_999)
    assert code_of(harness.responses[call]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_member_whose_call_was_abandoned_is_given_up_at_its_session_timeout(harness: ShardHarness) -> None:
    generation, (leader, follower) = stable_group(harness, 2)
    member_id, call = join_new(harness)
    harness.abandon(call)
    for _ in range(2):
        harness.pass_time(6_000)
        for other in (leader, follower):
            harness.call(heartbeat_request(other, generation))
    assert code_of(harness.call(join_request(member_id))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert call not in harness.responses


def test_new_member_that_asks_again_after_its_call_was_abandoned_is_in(harness: ShardHarness) -> None:
    generation, (leader,) = stable_group(harness)
    member_id, call = join_new(harness)
    harness.abandon(call)
    harness.pass_time(6_000)
    harness.call(heartbeat_request(leader, generation))
    again = harness.send(join_request(member_id))
    harness.pass_time(6_000)
    harness.send(join_request(leader))
    assert harness.responses[again].generation_id == 2


def test_join_is_refused_when_the_group_is_full() -> None:
    harness = ShardHarness(GroupSettings(group_max_size=2))
    _, (leader, follower) = stable_group(harness, 2)
    assert code_of(harness.call(join_request())) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert harness.call(join_request(follower)).generation_id == 1
    harness.call(leave_request(leader))
    join_new(harness)


def test_only_as_many_members_as_a_group_may_have_join_again_when_it_rebalances() -> None:
    harness = ShardHarness(GroupSettings(group_max_size=2))
    # While a group is empty nobody is counted.
    names = [harness.call(join_request()).member_id for _ in range(3)]
    calls = [harness.send(join_request(name)) for name in names]
    assert code_of(harness.responses[calls[2]]) is ErrorCode.GROUP_MAX_SIZE_REACHED
    harness.pass_time(6_000)
    assert harness.responses[calls[0]].generation_id == 1


def test_member_that_waits_may_ask_again_though_the_group_is_full() -> None:
    harness = ShardHarness(GroupSettings(group_max_size=2))
    names = [join_new(harness)[0] for _ in range(2)]
    again = harness.send(join_request(names[0]))
    harness.pass_time(6_000)
    assert harness.responses[again].generation_id == 1


def test_loaded_group_that_has_become_too_large_rebalances() -> None:
    harness = ShardHarness()
    generation, members = stable_group(harness, 3)
    harness.settings = GroupSettings(group_max_size=2)
    harness.reload()
    assert code_of(harness.call(heartbeat_request(members[0], generation))) is ErrorCode.REBALANCE_IN_PROGRESS
    answers = [harness.send(join_request(member_id)) for member_id in members]
    assert code_of(harness.responses[answers[2]]) is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_rebalance_timeout_that_is_not_given_is_the_session_timeout(harness: ShardHarness, timeout_ms: int) -> None:
    member_id, call = join_new(harness, rebalance_timeout_ms=timeout_ms, session_timeout_ms=20_000)
    harness.pass_time(3_000)
    assert harness.responses[call].generation_id == 1
    harness.pass_time(19_000)
    answer = harness.call(sync_request(member_id, 1, {member_id: b"all"}))
    assert answer.assignment == b"all", "it had the time to assign"


def test_member_ids_that_are_given_out_and_not_used_are_bounded(harness: ShardHarness) -> None:
    given = [harness.call(join_request()).member_id for _ in range(MAX_PENDING_JOINS + 1)]

    assert code_of(harness.call(join_request(given[0]))) is ErrorCode.UNKNOWN_MEMBER_ID
    joining = harness.send(join_request(given[1]))
    assert joining not in harness.responses, "the latest ones are still of use"


def test_refused_calls_leave_no_cyclic_garbage(harness: ShardHarness) -> None:
    stable_group(harness)
    requests = (
        join_request("nobody"),
        heartbeat_request("nobody", 1),
        leave_request("nobody"),
        commit_request({("t", 0): 1}, member_id="nobody"),
        DeleteGroupsRequest(("g",)),
    )
    for request in requests:
        harness.call(request)
    gc.collect()
    for request in requests:
        harness.call(request)
    harness.responses.clear()
    assert gc.collect() == 0
