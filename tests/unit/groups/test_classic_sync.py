"""SyncGroup: the assignment is written and, once committed, told (GroupMetadataManagerTest, testSyncGroup...)."""

from __future__ import annotations

import pytest
from group_shards import (
    ShardHarness,
    code_of,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    stable_group,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.records import GroupMetadataKey, GroupMetadataValue


def completing_group(harness: ShardHarness, members: int = 2) -> list[str]:
    """Return the members of a group in generation 1 that awaits its assignment, the leader first."""
    joins = [join_new(harness) for _ in range(members)]
    harness.pass_time(3_000 * (members + 1))
    leader = harness.responses[joins[0][1]].leader
    return sorted((member_id for member_id, _ in joins), key=lambda member_id: member_id != leader)


def test_all_members_are_told_their_assignment_when_the_leaders_is_committed(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    harness.holds_commits = True
    calls = {member_id: harness.send(sync_request(member_id, 1)) for member_id in (follower,)}
    calls[leader] = harness.send(sync_request(leader, 1, {leader: b"l", follower: b"f"}))
    assert not calls.keys() & harness.responses.keys()
    harness.commit()
    assert harness.responses[calls[leader]].assignment == b"l"
    assert harness.responses[calls[follower]].assignment == b"f"
    assert harness.responses[calls[follower]].protocol_name == "range"
    key, value = harness.log[-1]
    assert key == GroupMetadataKey("g")
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.leader, value.protocol, value.protocol_type) == (1, leader, "range", "consumer")
    assert {member.member_id: member.assignment for member in value.members} == {leader: b"l", follower: b"f"}


def test_member_without_an_assignment_has_an_empty_one(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    call = harness.send(sync_request(follower, 1))
    harness.call(sync_request(leader, 1, {leader: b"l", "nobody": b"n"}))
    assert harness.responses[call].assignment == b""
    assert harness.responses[call].error is None


def test_sync_is_refused_from_unknown_members_in_other_generations_and_with_another_protocol(
    harness: ShardHarness,
) -> None:
    assert code_of(harness.call(sync_request("nobody", 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, _ = completing_group(harness)
    assert code_of(harness.call(sync_request("nobody", 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(harness.call(sync_request(leader, 2))) is ErrorCode.ILLEGAL_GENERATION
    assert code_of(harness.call(sync_request(leader, 1, protocol="x"))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_is_refused_while_the_group_rebalances(harness: ShardHarness) -> None:
    generation, (leader, _) = stable_group(harness, 2)
    harness.send(join_request(leader))
    assert code_of(harness.call(sync_request(leader, generation))) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_sync_that_cannot_be_written_is_told_to_all_and_rebalances(
    harness: ShardHarness, failure: ErrorCode, answer: ErrorCode
) -> None:
    leader, follower = completing_group(harness)
    waiting = harness.send(sync_request(follower, 1))
    harness.fails_writes = failure
    assert code_of(harness.call(sync_request(leader, 1))) is answer
    assert code_of(harness.responses[waiting]) is answer
    assert code_of(harness.call(heartbeat_request(leader, 1))) is ErrorCode.REBALANCE_IN_PROGRESS


def test_assignment_that_is_committed_after_a_rebalance_began_is_of_the_past(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    harness.holds_commits = True
    sync = harness.send(sync_request(leader, 1, {leader: b"old"}))
    harness.call(leave_request(follower))
    assert code_of(harness.responses[sync]) is ErrorCode.REBALANCE_IN_PROGRESS
    join = harness.send(join_request(leader))
    harness.commit()
    assert harness.responses[join].generation_id == 2
    harness.holds_commits = False
    assert harness.call(sync_request(leader, 2, {leader: b"new"})).assignment == b"new"


def test_members_that_do_not_sync_are_removed_after_the_rebalance_timeout(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    waiting = harness.send(sync_request(follower, 1))
    for _ in range(11):
        harness.pass_time(5_000)
        harness.send(heartbeat_request(leader, 1))
    assert waiting not in harness.responses
    harness.pass_time(5_000)
    assert code_of(harness.responses[waiting]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert code_of(harness.call(sync_request(leader, 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.responses[harness.send(join_request(follower))].leader == follower


def test_follower_that_does_not_sync_with_a_stable_group_is_removed_too(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    harness.call(sync_request(leader, 1))
    for _ in range(11):
        harness.pass_time(5_000)
        for member_id in (leader, follower):
            assert harness.call(heartbeat_request(member_id, 1)).error is None
    harness.pass_time(5_000)
    assert code_of(harness.call(heartbeat_request(follower, 1))) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(harness.call(heartbeat_request(leader, 1))) is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_again_gives_the_assignment_of_a_stable_group(harness: ShardHarness) -> None:
    generation, members = stable_group(harness, 2)
    for member_id in members:
        assert harness.call(sync_request(member_id, generation)).assignment == member_id.encode()


def test_session_of_a_member_that_waits_for_its_assignment_is_not_over(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    call = harness.send(sync_request(follower, 1))
    for _ in range(5):
        harness.pass_time(5_000)
        harness.call(heartbeat_request(leader, 1))
    harness.call(sync_request(leader, 1, {follower: b"f"}))
    assert harness.responses[call].assignment == b"f"
    harness.pass_time(9_999)
    assert harness.call(heartbeat_request(follower, 1)).error is None


def test_sync_twice_leaves_no_call_without_an_answer(harness: ShardHarness) -> None:
    leader, follower = completing_group(harness)
    first = harness.send(sync_request(follower, 1))
    second = harness.send(sync_request(follower, 1))
    assert code_of(harness.responses[first]) is ErrorCode.REBALANCE_IN_PROGRESS
    harness.call(sync_request(leader, 1, {follower: b"f"}))
    assert harness.responses[second].assignment == b"f"


def test_leader_that_syncs_again_does_not_change_what_is_being_written(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000)
    harness.holds_commits = True
    harness.send(sync_request(member_id, 1, {member_id: b"first"}))
    again = harness.send(sync_request(member_id, 1, {member_id: b"second"}))
    harness.commit()
    assert harness.responses[again].assignment == b"first"
    harness.reload()
    assert harness.call(sync_request(member_id, 1)).assignment == b"first", "as with the coordinator before"


def test_leader_assigns_anew_after_its_assignment_could_not_be_written(harness: ShardHarness) -> None:
    member_id, _ = join_new(harness)
    harness.pass_time(3_000)
    harness.fails_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = harness.call(sync_request(member_id, 1, {member_id: b"first"}))
    assert code_of(refused) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.fails_writes = None
    assert harness.call(join_request(member_id)).generation_id == 2
    assert harness.call(sync_request(member_id, 2, {member_id: b"second"})).assignment == b"second"
