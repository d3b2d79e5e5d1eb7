"""Static members (KIP-345, KIP-814; GroupMetadataManagerTest, testStaticMember...)."""

from __future__ import annotations

from group_shards import (
    ShardHarness,
    code_of,
    commit_request,
    heartbeat_request,
    join_new,
    join_request,
    leave_request,
    sync_request,
)

from tidelog_foundation.errors import ErrorCode
from tidelog_node.groups.messages import LeaveGroupRequest, LeavingMember
from tidelog_node.groups.records import GroupMetadataValue


def static_group(harness: ShardHarness) -> list[str]:
    """Return the member ids of the instances a, which leads, and b, stable in generation 1."""
    calls = [harness.send(join_request(instance=name)) for name in "ab"]
    harness.pass_time(9_000)
    leader, follower = (harness.responses[call].member_id for call in calls)
    harness.send(sync_request(follower, 1, instance="b"))
    harness.call(sync_request(leader, 1, {leader: b"A", follower: b"B"}, instance="a"))
    return [leader, follower]


def test_static_member_joins_without_an_id_at_once(harness: ShardHarness) -> None:
    call = harness.send(join_request(instance="a"))
    harness.pass_time(3_000)
    answer = harness.responses[call]
    assert answer.member_id.startswith("a-")
    assert answer.members[0].group_instance_id == "a"


def test_follower_that_comes_back_keeps_its_assignment_without_a_rebalance(harness: ShardHarness) -> None:
    leader, follower = static_group(harness)
    answer = harness.call(join_request(instance="b"))
    assert answer.member_id != follower
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert harness.call(sync_request(answer.member_id, 1, instance="b")).assignment == b"B"
    assert harness.call(heartbeat_request(leader, 1, instance="a")).error is None


def test_leader_that_comes_back_leads_and_need_not_assign(harness: ShardHarness) -> None:
    static_group(harness)
    answer = harness.call(join_request(instance="a"))
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (1, answer.member_id, True)
    assert {member.group_instance_id for member in answer.members} == {"a", "b"}
    assert harness.call(sync_request(answer.member_id, 1, instance="a")).assignment == b"A"


def test_new_id_of_a_static_member_is_written_before_it_is_answered(harness: ShardHarness) -> None:
    static_group(harness)
    harness.holds_commits = True
    call = harness.send(join_request(instance="b"))
    assert call not in harness.responses
    harness.commit()
    value = harness.log[-1][1]
    assert isinstance(value, GroupMetadataValue)
    members = {member.group_instance_id: (member.member_id, member.assignment) for member in value.members}
    assert members["b"] == (harness.responses[call].member_id, b"B")
    harness.reload()
    assert harness.call(sync_request(members["b"][0], 1, instance="b")).assignment == b"B"


def test_older_holder_of_an_instance_id_is_fenced_wherever_it_calls(harness: ShardHarness) -> None:
    _, old = static_group(harness)
    new = harness.call(join_request(instance="b")).member_id
    assert code_of(harness.call(heartbeat_request(old, 1, instance="b"))) is ErrorCode.FENCED_INSTANCE_ID
    assert code_of(harness.call(sync_request(old, 1, instance="b"))) is ErrorCode.FENCED_INSTANCE_ID
    assert code_of(harness.call(join_request(old, instance="b"))) is ErrorCode.FENCED_INSTANCE_ID
    request = commit_request({("t", 0): 1}, member_id=old, generation=1, instance="b")
    assert code_of(harness.call(request).topics[0].partitions[0]) is ErrorCode.FENCED_INSTANCE_ID
    leave = LeaveGroupRequest(group_id="g", members=(LeavingMember(member_id=old, group_instance_id="b"),))
    assert code_of(harness.call(leave).members[0]) is ErrorCode.FENCED_INSTANCE_ID
    assert harness.call(heartbeat_request(new, 1, instance="b")).error is None


def test_older_holder_that_waits_for_the_rebalance_is_fenced(harness: ShardHarness) -> None:
    first = harness.send(join_request(instance="a"))
    second = harness.send(join_request(instance="a"))
    assert code_of(harness.responses[first]) is ErrorCode.FENCED_INSTANCE_ID
    harness.pass_time(6_000)
    assert len(harness.responses[second].members) == 1


def test_older_holder_that_waits_for_its_assignment_is_fenced_and_the_group_rebalances(
    harness: ShardHarness,
) -> None:
    calls = [harness.send(join_request(instance=name)) for name in "ab"]
    harness.pass_time(9_000)
    leader, follower = (harness.responses[call].member_id for call in calls)
    waiting = harness.send(sync_request(follower, 1, instance="b"))
    harness.send(join_request(instance="b"))
    assert code_of(harness.responses[waiting]) is ErrorCode.FENCED_INSTANCE_ID
    assert code_of(harness.call(heartbeat_request(leader, 1, instance="a"))) is ErrorCode.REBALANCE_IN_PROGRESS


def test_static_member_that_comes_back_with_another_protocol_rebalances(harness: ShardHarness) -> None:
    calls = [harness.send(join_request(instance=name, protocols=[("range", b""), ("sticky", b"")])) for name in "ab"]
    harness.pass_time(9_000)
    leader = harness.responses[calls[0]].member_id
    harness.call(sync_request(leader, 1, instance="a"))
    call = harness.send(join_request(instance="b", protocols=[("sticky", b"")]))
    assert call not in harness.responses
    harness.send(join_request(leader, instance="a", protocols=[("range", b""), ("sticky", b"")]))
    assert (harness.responses[call].generation_id, harness.responses[call].protocol_name) == (2, "sticky")


def test_static_member_that_cannot_be_written_is_as_before(harness: ShardHarness) -> None:
    _, old = static_group(harness)
    harness.fails_writes = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(harness.call(join_request(instance="b"))) is ErrorCode.NOT_COORDINATOR
    assert harness.call(heartbeat_request(old, 1, instance="b")).error is None
    assert harness.call(sync_request(old, 1, instance="b")).assignment == b"B"


def test_static_member_that_comes_back_twice_before_the_first_is_committed_is_the_last(
    harness: ShardHarness,
) -> None:
    static_group(harness)
    harness.holds_commits = True
    first, second = (harness.send(join_request(instance="b")) for _ in range(2))
    assert code_of(harness.responses[first]) is ErrorCode.FENCED_INSTANCE_ID
    harness.commit(1)
    assert second not in harness.responses
    harness.commit(1)
    assert harness.responses[second].generation_id == 1


def test_static_member_that_comes_back_while_another_leaves_joins_the_next_generation(harness: ShardHarness) -> None:
    leader, _ = static_group(harness)
    harness.holds_commits = True
    call = harness.send(join_request(instance="b"))
    harness.call(leave_request(leader))
    assert harness.responses[call].generation_id == 2
    harness.commit()


def test_static_member_outlives_a_rebalance_that_it_misses_until_its_session_ends(harness: ShardHarness) -> None:
    leader, follower = static_group(harness)
    call = harness.send(join_request(leader, instance="a", rebalance_timeout_ms=7_000))
    harness.send(join_request(follower, instance="b", rebalance_timeout_ms=7_000))
    assert harness.responses[call].generation_id == 2
    harness.call(sync_request(leader, 2, {}, instance="a"))
    call = harness.send(join_request(leader, instance="a", rebalance_timeout_ms=7_000))
    harness.pass_time(7_000)
    assert {m.group_instance_id for m in harness.responses[call].members} == {"a", "b"}
    assert harness.call(heartbeat_request(follower, 3, instance="b")).error is None
    harness.pass_time(10_000)
    assert code_of(harness.call(heartbeat_request(follower, 3, instance="b"))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_of_static_members_that_all_miss_a_rebalance_waits_for_them(harness: ShardHarness) -> None:
    leader, follower = static_group(harness)
    call = harness.send(join_request(leader, instance="a", session_timeout_ms=200_000))
    leave = LeavingMember(member_id=leader, group_instance_id="a")
    harness.call(LeaveGroupRequest(group_id="g", members=(leave,)))
    assert code_of(harness.responses[call]) is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(14):
        harness.pass_time(5_000)
        answer = harness.call(heartbeat_request(follower, 1, instance="b"))
        assert code_of(answer) is ErrorCode.REBALANCE_IN_PROGRESS
    call = harness.send(join_request(follower, instance="b"))
    assert harness.responses[call].generation_id == 2


def test_static_member_that_comes_back_and_does_not_sync_is_removed(harness: ShardHarness) -> None:
    calls = [harness.send(join_request(instance=name)) for name in "ab"]
    harness.pass_time(9_000)
    leader = harness.responses[calls[0]].member_id
    harness.call(sync_request(leader, 1, instance="a"))
    new = harness.call(join_request(instance="b")).member_id
    for _ in range(12):
        harness.pass_time(5_000)
        for member_id, instance in ((leader, "a"), (new, "b")):
            harness.call(heartbeat_request(member_id, 1, instance=instance))
    assert code_of(harness.call(heartbeat_request(new, 1, instance="b"))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_whose_new_id_takes_long_to_commit_has_its_session_from_then_on(harness: ShardHarness) -> None:
    leader, _ = static_group(harness)
    harness.holds_commits = True
    call = harness.send(join_request(instance="b"))
    for _ in range(3):
        harness.pass_time(5_000)
        harness.call(heartbeat_request(leader, 1, instance="a"))
    harness.commit()
    new = harness.responses[call].member_id
    harness.pass_time(5_000)
    harness.call(heartbeat_request(leader, 1, instance="a"))
    assert harness.call(heartbeat_request(new, 1, instance="b")).error is None
    harness.pass_time(10_000)
    assert code_of(harness.call(heartbeat_request(new, 1, instance="b"))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_silent_static_member_expires_after_its_new_id_took_long_to_commit(harness: ShardHarness) -> None:
    leader, _ = static_group(harness)
    harness.holds_commits = True
    call = harness.send(join_request(instance="b"))
    for _ in range(5):
        harness.pass_time(5_000)
        harness.call(heartbeat_request(leader, 1, instance="a"))
    harness.commit()
    assert call in harness.responses
    for _ in range(2):
        harness.pass_time(5_000)
        last = harness.call(heartbeat_request(leader, 1, instance="a"))
    assert code_of(last) is ErrorCode.REBALANCE_IN_PROGRESS


def test_static_member_that_cannot_be_written_has_its_protocols_as_before(harness: ShardHarness) -> None:
    _, old = static_group(harness)
    harness.fails_writes = ErrorCode.NOT_LEADER_OR_FOLLOWER
    harness.call(join_request(instance="b", protocols=[("range", b"new")]))
    assert harness.call(join_request(old, instance="b")).generation_id == 1


def test_leader_is_the_same_with_another_coordinator(harness: ShardHarness) -> None:
    leader, follower = static_group(harness)
    protocols = [("range", b"new")]
    call = harness.send(join_request(follower, instance="b", protocols=protocols, session_timeout_ms=100_000))
    for _ in range(12):
        harness.pass_time(5_000)
        harness.call(heartbeat_request(leader, 1, instance="a"))
    assert harness.responses[call].leader == follower
    harness.call(sync_request(follower, 2, instance="b"))
    harness.reload()
    assert harness.call(join_request(instance="a")).leader == follower


def test_pending_member_cannot_take_an_instance_id(harness: ShardHarness) -> None:
    member_id = harness.call(join_request()).member_id
    assert code_of(harness.call(join_request(member_id, instance="x"))) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_and_dynamic_members_are_in_one_group(harness: ShardHarness) -> None:
    static = harness.send(join_request(instance="a"))
    dynamic, call = join_new(harness)
    harness.pass_time(9_000)
    assert harness.responses[static].generation_id == harness.responses[call].generation_id == 1
    assert code_of(harness.call(heartbeat_request(dynamic, 1, instance="a"))) is ErrorCode.FENCED_INSTANCE_ID
