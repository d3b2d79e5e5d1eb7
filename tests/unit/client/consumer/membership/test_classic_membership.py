"""The classic membership against a coordinator that the tests play."""

from __future__ import annotations

import pytest
from member_script import BACKOFF_MS, MemberScript, error, keys

from tidelog.consumer.assignors import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidelog.consumer.membership.events import (
    AskTopics,
    Assign,
    Call,
    Closing,
    Left,
    MembershipChanged,
    Polled,
    ReportError,
    Revoke,
    Unsubscribed,
)
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError


def stable(*partitions: int, protocol: str = "range", **settings: object) -> MemberScript:
    """A follower m-1 in generation 1 with these partitions of topic t."""
    script = MemberScript(**{"assignors": (protocol,), **settings})
    script.subscribe("t")
    script.join(protocol=protocol)
    script.sync(encode_assignment(keys("t", *partitions)))
    script.poll()
    assert script.member.owned == keys("t", *partitions)
    script.take(MembershipChanged)
    return script


def heartbeat(script: MemberScript, code: ErrorCode = ErrorCode.NONE) -> None:
    """The next heartbeat is due, and answered."""
    script.pass_ms(script.settings.heartbeat_interval_ms)
    call, _ = script.call(pb.HeartbeatRequest)
    script.answer(
        call, pb.HeartbeatResponse(error=error(code)) if code is not ErrorCode.NONE else pb.HeartbeatResponse()
    )


def test_classic_member_joins_again_with_the_id_it_is_given() -> None:
    script = MemberScript(group_instance_id=None)
    script.subscribe("t")
    call, first = script.call(pb.JoinGroupRequest)
    assert (first.member_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("", 45_000, 60_000)
    assert call.timeout_ms == 65_000
    script.answer(call, pb.JoinGroupResponse(error=error(ErrorCode.MEMBER_ID_REQUIRED), member_id="m-1"))
    _, second = script.call(pb.JoinGroupRequest)
    assert second.member_id == "m-1"


def test_classic_follower_gets_its_partitions_after_sync() -> None:
    script = MemberScript()
    script.subscribe("t")
    script.join(generation=5)
    assert script.one(MembershipChanged) == MembershipChanged(5, "m-1")
    request = script.sync(encode_assignment(keys("t", 0, 2)))
    assert (request.generation_id, request.member_id, list(request.assignments)) == (5, "m-1", [])
    assign = script.one(Assign)
    assert (assign.partitions, assign.incremental) == (keys("t", 0, 2), False)
    assert script.member.owned == keys("t", 0, 2)


def test_classic_follower_takes_no_partitions_of_topics_it_does_not_subscribe_to() -> None:
    script = MemberScript()
    script.subscribe("t")
    script.join()
    script.sync(encode_assignment(keys("t", 0) | keys("alien", 0)))
    assert script.one(Assign).partitions == keys("t", 0)


def test_classic_leader_asks_for_the_topics_of_all_and_assigns() -> None:
    script = MemberScript()
    script.subscribe("t", "u")
    script.join(leader="m-1")
    assert script.one(AskTopics).topics == {"t", "u"}
    assert not script.take(Call)
    script.learn(t=2, u=1, other=9)
    _, request = script.call(pb.SyncGroupRequest)
    (own,) = request.assignments
    assert own.member_id == "m-1"
    assert decode_assignment(own.assignment) == keys("t", 0, 1) | keys("u", 0)


def test_classic_leader_that_need_not_assign_sends_nothing() -> None:
    script = MemberScript(group_instance_id="i")
    script.subscribe("t")
    call, request = script.call(pb.JoinGroupRequest)
    member = pb.JoinGroupMember(member_id="m-1", metadata=request.protocols[0].metadata)
    answer = pb.JoinGroupResponse(
        generation_id=3, protocol_name="range", leader="m-1", member_id="m-1", skip_assignment=True, members=[member]
    )
    script.answer(call, answer)
    script.learn(t=2)
    assert not script.sync(encode_assignment(keys("t", 0))).assignments
    script.poll()
    script.learn(t=3)
    script.poll()
    script.call(pb.JoinGroupRequest)


def test_classic_leader_rebalances_when_a_topic_grows_or_appears() -> None:
    script = MemberScript()
    script.subscribe("t", "u")
    script.join(leader="m-1")
    script.learn(t=2)
    script.sync(encode_assignment(keys("t", 0, 1)))
    script.poll()
    script.learn(t=2)
    assert not script.take(Revoke)
    script.learn(t=2, u=1)
    assert script.one(Revoke).partitions == keys("t", 0, 1)


def test_classic_leader_rebalances_when_the_topics_changed_while_it_synced() -> None:
    script = MemberScript()
    script.subscribe("t")
    script.join(leader="m-1")
    script.learn(t=1)
    script.learn(t=2)
    script.sync(encode_assignment(keys("t", 0)))
    script.poll()
    _, request = script.call(pb.JoinGroupRequest)
    assert request.reason == "cached metadata has changed"


def test_classic_leader_rebalances_when_what_it_left_out_gets_no_owner() -> None:
    script = MemberScript(assignors=("cooperative-sticky",))
    script.subscribe("t")
    call, request = script.call(pb.JoinGroupRequest)
    owner = Subscription(frozenset("t"), owned=keys("t", 0, 1), generation=1)
    members = [
        pb.JoinGroupMember(member_id="m-1", metadata=request.protocols[0].metadata),
        pb.JoinGroupMember(member_id="m-2", metadata=encode_subscription(owner)),
    ]
    joined = pb.JoinGroupResponse(generation_id=2, leader="m-1", member_id="m-1", members=members)
    joined.protocol_name = "cooperative-sticky"
    script.answer(call, joined)
    script.learn(t=2)
    script.sync(encode_assignment(()))
    script.poll()
    for _ in range(script.settings.max_poll_interval_ms // script.settings.heartbeat_interval_ms - 1):
        heartbeat(script)
        script.poll()
        assert not script.take(Call)
    script.pass_ms(script.settings.heartbeat_interval_ms)
    request = script.take(Call)[-1].request
    assert isinstance(request, pb.JoinGroupRequest)
    assert request.reason == "partitions still wait for a rebalance to get an owner"


def test_classic_leader_gives_nothing_to_a_member_that_it_cannot_read() -> None:
    script = MemberScript()
    script.subscribe("t")
    call, request = script.call(pb.JoinGroupRequest)
    members = [
        pb.JoinGroupMember(member_id="m-1", metadata=request.protocols[0].metadata),
        pb.JoinGroupMember(member_id="m-2", metadata=b"\0\1\0\0\xff\xff"),
    ]
    script.answer(
        call,
        pb.JoinGroupResponse(generation_id=1, protocol_name="range", leader="m-1", member_id="m-1", members=members),
    )
    assert script.one(ReportError).error.code is ErrorCode._BAD_MSG
    script.learn(t=3)
    _, sync = script.call(pb.SyncGroupRequest)
    assert {each.member_id: decode_assignment(each.assignment) for each in sync.assignments} == {
        "m-1": keys("t", 0, 1, 2),
        "m-2": frozenset(),
    }


def test_classic_eager_member_gives_everything_up_before_it_joins_again() -> None:
    script = stable(0, 1)
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    revoke = script.one(Revoke)
    assert (revoke.partitions, revoke.incremental, revoke.lost) == (keys("t", 0, 1), False, False)
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    assert not script.take(Call)
    script.serve(revoke)
    _, request = script.call(pb.JoinGroupRequest)
    subscription = decode_subscription(request.protocols[0].metadata)
    assert (subscription.owned, subscription.generation) == (frozenset(), 1)
    script.pass_ms(script.settings.heartbeat_interval_ms)
    assert not script.take(Call)


def test_classic_cooperative_member_keeps_its_partitions_while_it_joins() -> None:
    script = stable(0, 1, 2, protocol="cooperative-sticky")
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    assert not script.take(Revoke)
    call, request = script.call(pb.JoinGroupRequest)
    subscription = decode_subscription(request.protocols[0].metadata)
    assert (subscription.owned, subscription.generation) == (keys("t", 0, 1, 2), 1)
    assert script.member.owned == keys("t", 0, 1, 2)
    assert call


def test_classic_cooperative_member_revokes_then_takes_then_joins_again() -> None:
    script = stable(0, 1, protocol="cooperative-sticky")
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    script.join(generation=2, protocol="cooperative-sticky")
    script.sync(encode_assignment(keys("t", 1, 5)))
    revoke = script.one(Revoke)
    assert (revoke.partitions, revoke.incremental) == (keys("t", 0), True)
    script.serve(revoke)
    assign = script.one(Assign)
    assert (assign.partitions, assign.incremental) == (keys("t", 5), True)
    script.serve(assign)
    _, request = script.call(pb.JoinGroupRequest)
    subscription = decode_subscription(request.protocols[0].metadata)
    assert (subscription.owned, subscription.generation) == (keys("t", 1, 5), 2)


def test_classic_cooperative_member_gives_up_a_topic_that_it_leaves_before_it_joins() -> None:
    script = stable(0, protocol="cooperative-sticky")
    script.subscribe("t", "u")
    script.join(generation=2, protocol="cooperative-sticky")
    script.sync(encode_assignment(keys("t", 0) | keys("u", 0)))
    script.poll()
    script.subscribe("u")
    assert script.one(Revoke).partitions == keys("t", 0)


def test_classic_mixed_assignors_are_eager() -> None:
    script = MemberScript(assignors=("cooperative-sticky", "range"))
    script.subscribe("t")
    script.join(protocol="cooperative-sticky")
    script.sync(encode_assignment(keys("t", 0)))
    assert not script.one(Assign).incremental
    script.poll()


def test_classic_cooperative_member_says_in_which_generation_it_was_assigned_after_a_failed_sync() -> None:
    script = stable(0, protocol="cooperative-sticky")
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    script.join(generation=2, protocol="cooperative-sticky")
    call, _ = script.call(pb.SyncGroupRequest)
    script.answer(call, pb.SyncGroupResponse(error=error(ErrorCode.REBALANCE_IN_PROGRESS)))
    _, request = script.call(pb.JoinGroupRequest)
    assert decode_subscription(request.protocols[0].metadata).generation == 1


def test_classic_subscription_change_makes_the_member_join_again() -> None:
    script = stable(0)
    script.subscribe("t")
    assert not script.take(Revoke)
    script.subscribe("t", "u")
    script.poll()
    _, request = script.call(pb.JoinGroupRequest)
    assert decode_subscription(request.protocols[0].metadata).topics == {"t", "u"}


def test_classic_subscription_change_while_joining_makes_the_member_join_again_afterwards() -> None:
    script = MemberScript()
    script.subscribe("t")
    script.subscribe("u")
    script.join()
    script.sync(encode_assignment(frozenset()))
    script.poll()
    _, request = script.call(pb.JoinGroupRequest)
    assert decode_subscription(request.protocols[0].metadata).topics == {"u"}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
def test_classic_member_that_was_put_out_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    script = stable(0, protocol="cooperative-sticky")
    heartbeat(script, code)
    assert script.one(MembershipChanged) == MembershipChanged(-1, "")
    revoke = script.one(Revoke)
    assert (revoke.partitions, revoke.lost) == (keys("t", 0), True)
    assert not script.take(Call)
    script.serve(revoke)
    _, request = script.call(pb.JoinGroupRequest)
    assert request.member_id == ("m-1" if code is ErrorCode.ILLEGAL_GENERATION else "")


def test_classic_late_heartbeat_answer_of_a_former_generation_is_dropped() -> None:
    script = stable(0, protocol="cooperative-sticky")
    script.pass_ms(3_000)
    late = script.one(Call)
    script.subscribe("t", "u")
    script.join(generation=2, protocol="cooperative-sticky")
    script.answer(late, pb.HeartbeatResponse(error=error(ErrorCode.ILLEGAL_GENERATION)))
    assert not script.take(Revoke)


def test_classic_member_that_is_fenced_ends_with_a_fatal_error() -> None:
    script = stable(0, group_instance_id="i")
    heartbeat(script, ErrorCode.FENCED_INSTANCE_ID)
    reported = script.one(ReportError).error
    assert reported.error.fatal()
    assert reported.code is ErrorCode.FENCED_INSTANCE_ID
    revoke = script.one(Revoke)
    assert revoke.lost
    script.serve(revoke)
    script.poll()
    script.pass_ms(100_000)
    assert not script.take(Call) + script.take(ReportError)
    script.step(Closing())
    script.one(Left)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_classic_join_is_tried_again_after_a_back_off_while_the_coordinator_moves(code: ErrorCode) -> None:
    script = MemberScript()
    script.subscribe("t")
    for attempt in (1, 2):
        call, _ = script.call(pb.JoinGroupRequest)
        script.answer(call, pb.JoinGroupResponse(error=error(code)))
        assert script.member.next_deadline_ms == script.now_ms + BACKOFF_MS * attempt
        script.pass_ms(BACKOFF_MS * attempt - 1)
        assert not script.take(Call)
        script.pass_ms(1)
    call, _ = script.call(pb.JoinGroupRequest)
    script.fail(call)
    script.pass_ms(3 * BACKOFF_MS)
    script.call(pb.JoinGroupRequest)


def test_classic_join_that_is_refused_is_reported_and_tried_again_at_the_next_poll() -> None:
    script = MemberScript()
    script.subscribe("t")
    call, _ = script.call(pb.JoinGroupRequest)
    script.answer(call, pb.JoinGroupResponse(error=error(ErrorCode.GROUP_MAX_SIZE_REACHED)))
    assert script.one(ReportError).error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    script.pass_ms(10_000)
    assert not script.take(Call)
    script.poll()
    script.call(pb.JoinGroupRequest)


def test_classic_group_with_an_assignor_that_the_member_does_not_have_is_reported() -> None:
    script = MemberScript()
    script.subscribe("t")
    script.join(protocol="sticky")
    reported: TidelogError = script.one(ReportError).error
    assert reported.error == KafkaError.INCONSISTENT_GROUP_PROTOCOL
    assert "'sticky', not one of range" in reported.message


def test_classic_heartbeats_go_on_without_poll_and_fail_softly() -> None:
    script = stable(0)
    script.pass_ms(3_000)
    call, _ = script.call(pb.HeartbeatRequest)
    script.pass_ms(3_000)
    assert not script.take(Call)
    script.fail(call)
    script.pass_ms(BACKOFF_MS)
    call, request = script.call(pb.HeartbeatRequest)
    assert (request.generation_id, request.member_id) == (1, "m-1")
    script.answer(call, pb.HeartbeatResponse(error=error(ErrorCode.NOT_COORDINATOR)))
    script.pass_ms(2 * BACKOFF_MS)
    script.call(pb.HeartbeatRequest)
    assert not script.take(Revoke)


def test_classic_session_without_a_sign_of_the_coordinator_is_given_up() -> None:
    script = stable(0)
    while script.now_ms < 44_999:
        script.pass_ms(min(3_000, 44_999 - script.now_ms))
        for call in script.take(Call):
            script.fail(call)
    assert not script.take(Revoke)
    script.pass_ms(1)
    assert script.one(Revoke).lost
    assert script.one(MembershipChanged) == MembershipChanged(-1, "")


def test_classic_cooperative_session_is_given_up_when_joining_fails_for_so_long() -> None:
    script = stable(0, protocol="cooperative-sticky")
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    call, _ = script.call(pb.JoinGroupRequest)
    script.pass_ms(50_000)
    script.poll()
    script.answer(call, pb.JoinGroupResponse(error=error(ErrorCode.NOT_COORDINATOR)))
    while not (revoked := script.take(Revoke)) and script.now_ms < 120_000:
        script.poll()
        script.pass_ms(1_000)
        for call in script.take(Call):
            script.answer(call, pb.JoinGroupResponse(error=error(ErrorCode.NOT_COORDINATOR)))
    assert revoked[0].lost
    assert script.now_ms == 3_000 + 50_000 + 45_000


def test_classic_member_whose_application_does_not_poll_leaves_and_comes_back_with_it() -> None:
    script = stable(0)
    script.step(Polled())
    for _ in range(19):
        heartbeat(script)
    script.pass_ms(3_000)
    assert script.one(ReportError).error.code is ErrorCode._MAX_POLL_EXCEEDED
    call, request = script.call(pb.LeaveGroupRequest)
    assert request.members[0].member_id == "m-1"
    revoke = script.one(Revoke)
    assert revoke.lost
    script.answer(call, pb.LeaveGroupResponse())
    script.pass_ms(100_000)
    assert not script.take(Call)
    script.serve(revoke)
    assert not script.take(Call)
    script.step(Polled())
    _, join = script.call(pb.JoinGroupRequest)
    assert join.member_id == ""


def test_classic_member_joins_only_after_its_leave_was_answered() -> None:
    script = stable(0)
    script.pass_ms(60_000)
    call = next(call for call in script.take(Call) if isinstance(call.request, pb.LeaveGroupRequest))
    script.poll()
    assert not script.take(Call)
    script.fail(call)
    script.call(pb.JoinGroupRequest)


def test_classic_close_gives_the_partitions_up_before_the_member_leaves() -> None:
    script = stable(0)
    script.step(Closing())
    revoke = script.one(Revoke)
    assert not revoke.lost
    assert not script.take(MembershipChanged)
    script.serve(revoke)
    call, _ = script.call(pb.LeaveGroupRequest)
    assert script.one(MembershipChanged) == MembershipChanged(-1, "")
    assert not script.take(Left)
    script.answer(call, pb.LeaveGroupResponse())
    script.one(Left)


def test_classic_close_while_joining_leaves_at_once() -> None:
    script = MemberScript()
    script.subscribe("t")
    call, _ = script.call(pb.JoinGroupRequest)
    script.answer(call, pb.JoinGroupResponse(error=error(ErrorCode.MEMBER_ID_REQUIRED), member_id="m-1"))
    join, _ = script.call(pb.JoinGroupRequest)
    script.step(Closing())
    leave, request = script.call(pb.LeaveGroupRequest)
    assert request.members[0].member_id == "m-1"
    script.answer(join, pb.JoinGroupResponse(generation_id=1, member_id="m-1", leader="m-1", protocol_name="range"))
    assert not script.take(Left)
    script.fail(leave)
    script.one(Left)


def test_classic_static_member_does_not_leave_when_it_closes() -> None:
    script = stable(0, group_instance_id="i")
    script.step(Closing())
    script.poll()
    assert not script.take(Call)
    script.one(Left)


def test_classic_close_without_a_subscription_ends_at_once() -> None:
    script = MemberScript()
    script.step(Closing())
    script.one(Left)


def test_classic_unsubscribe_leaves_and_a_later_subscription_joins_afresh() -> None:
    script = stable(0)
    script.step(Unsubscribed())
    script.poll()
    call, _ = script.call(pb.LeaveGroupRequest)
    script.subscribe("u")
    assert not script.take(Call)
    script.answer(call, pb.LeaveGroupResponse())
    _, request = script.call(pb.JoinGroupRequest)
    assert request.member_id == ""
    assert script.member.next_deadline_ms is not None


def test_classic_partitions_that_were_not_yet_served_are_taken_back_when_they_are_lost() -> None:
    script = stable(protocol="cooperative-sticky")
    heartbeat(script, ErrorCode.REBALANCE_IN_PROGRESS)
    script.join(generation=2, protocol="cooperative-sticky")
    script.sync(encode_assignment(keys("t", 3)))
    assign = script.one(Assign)
    heartbeat(script, ErrorCode.UNKNOWN_MEMBER_ID)
    assert not script.take(Revoke)
    script.serve(assign)
    revoke = script.one(Revoke)
    assert (revoke.partitions, revoke.lost) == (keys("t", 3), True)
