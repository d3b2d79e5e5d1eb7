"""The membership of KIP-848 against a coordinator that the tests play."""

from __future__ import annotations

import pytest
from member_script import BACKOFF_MS, MemberScript, keys, topic

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
    Subscribed,
    TopicsLearned,
    Unsubscribed,
)
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode

T = topic(9, "t")
U = topic(9, "u")


def new(**settings: object) -> MemberScript:
    return MemberScript(**{"group_protocol": "consumer", **settings})


def stable(*partitions: int, **settings: object) -> MemberScript:
    """A member in epoch 1 that has these partitions of topic t, and has said so."""
    script = new(**settings)
    script.subscribe("t")
    script.learn(t=9)
    script.take(AskTopics)
    script.beat(1, [(T, partition) for partition in partitions])
    script.poll()
    if partitions:
        script.beat(1)
    assert script.member.owned == keys("t", *partitions)
    script.take(MembershipChanged)
    return script


def owned(request: pb.ConsumerGroupHeartbeatRequest) -> set[tuple[bytes, int]] | None:
    if not request.HasField("topic_partitions"):
        return None
    return {(each.topic_id, partition) for each in request.topic_partitions.topics for partition in each.partitions}


def test_consumer_member_says_everything_when_it_joins_and_then_what_has_changed() -> None:
    script = new(client_rack="r", remote_assignor="uniform")
    script.subscribe("t")
    assert script.one(AskTopics).topics == {"t"}
    script.learn(t=9)
    first = script.beat(3, [(T, 0)], interval_ms=1_000)
    assert (first.group_id, first.member_id, first.member_epoch) == ("g", "made-id", 0)
    assert (first.rebalance_timeout_ms, first.rack_id, first.server_assignor) == (60_000, "r", "uniform")
    assert list(first.subscribed_topic_names.names) == ["t"]
    assert owned(first) == set()
    assert not first.HasField("subscribed_topic_regex")
    assert script.one(MembershipChanged) == MembershipChanged(3, "made-id")
    second = script.beat(3, interval_ms=1_000)
    assert owned(second) == {(T.topic_id, 0)}
    for field in ("rebalance_timeout_ms", "rack_id", "server_assignor", "subscribed_topic_names"):
        assert not second.HasField(field)
    script.poll()
    script.pass_ms(999)
    assert not script.take(Call)
    script.pass_ms(1)
    third = script.beat(3)
    assert (third.member_epoch, owned(third)) == (3, None)


def test_consumer_member_is_told_of_an_empty_assignment() -> None:
    script = new()
    script.subscribe("t")
    script.beat(1, [])
    assert script.one(Assign).partitions == frozenset()


def test_consumer_member_says_everything_again_after_a_call_failed() -> None:
    script = stable(0)
    script.pass_ms(5_000)
    call, _ = script.call(pb.ConsumerGroupHeartbeatRequest)
    script.fail(call)
    script.pass_ms(BACKOFF_MS - 1)
    assert not script.take(Call)
    script.pass_ms(1)
    request = script.beat(1)
    assert owned(request) == {(T.topic_id, 0)}
    assert list(request.subscribed_topic_names.names) == ["t"]
    assert request.rebalance_timeout_ms == 60_000


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_consumer_member_waits_while_the_coordinator_moves(code: ErrorCode) -> None:
    script = stable(0)
    script.pass_ms(5_000)
    script.refuse(code)
    assert script.member.next_deadline_ms == script.now_ms + BACKOFF_MS
    script.pass_ms(BACKOFF_MS)
    assert owned(script.beat(1)) == {(T.topic_id, 0)}
    assert script.member.owned == keys("t", 0)


def test_consumer_member_gives_up_and_says_so_before_it_is_given_more() -> None:
    script = stable(0, 1)
    script.pass_ms(5_000)
    script.beat(1, [(T, 1), (T, 2)])
    revoke = script.one(Revoke)
    assert (revoke.partitions, revoke.incremental, revoke.lost) == (keys("t", 0), True, False)
    assert not script.take(Call) + script.take(Assign)
    script.serve(revoke)
    assign = script.one(Assign)
    assert (assign.partitions, assign.incremental) == (keys("t", 2), True)
    assert owned(script.beat(2)) == {(T.topic_id, 1), (T.topic_id, 2)}


def test_consumer_member_takes_one_step_at_a_time() -> None:
    script = stable(0)
    script.pass_ms(5_000)
    script.beat(2, [(T, 0), (T, 1)])
    assign = script.one(Assign)
    script.beat(2, [])
    assert not script.take(Revoke)
    script.serve(assign)
    revoke = script.one(Revoke)
    assert revoke.partitions == keys("t", 0, 1)
    script.serve(revoke)
    assert owned(script.beat(3)) == set()
    assert script.one(Assign).partitions == frozenset()


def test_consumer_member_claims_what_it_is_just_being_given() -> None:
    """Otherwise the coordinator gives it to another when the request is a full one, and both have it."""
    script = stable()
    script.pass_ms(5_000)
    script.beat(2, [(T, 4)])
    script.one(Assign)
    call, _ = script.call(pb.ConsumerGroupHeartbeatRequest)
    script.fail(call)
    script.pass_ms(BACKOFF_MS)
    assert owned(script.beat(2)) == {(T.topic_id, 4)}


def test_consumer_member_waits_for_the_names_of_topics() -> None:
    script = new()
    script.subscribe("t")
    script.take(AskTopics)
    script.learn(t=9)
    script.beat(1, [(T, 0), (U, 3)])
    assert script.one(AskTopics).topics == {"t"}
    assert script.one(Assign).partitions == keys("t", 0)
    script.poll()
    script.learn(t=9, u=9)
    assert script.member.owned == keys("t", 0)
    script.beat(1)
    script.step(TopicsLearned({"t": T, "u": U}))
    script.poll()


def test_consumer_member_is_given_a_topic_when_its_name_is_learned() -> None:
    script = stable(0)
    script.pass_ms(5_000)
    script.beat(2, [(T, 0), (U, 3)])
    script.poll()
    script.learn(t=9, u=9)
    assert script.one(Assign).partitions == keys("u", 3)


def test_consumer_member_gives_up_a_topic_that_the_metadata_has_forgotten() -> None:
    script = stable(0)
    script.learn()
    script.pass_ms(5_000)
    script.beat(2, [])
    assert script.one(Revoke).partitions == keys("t", 0)


def test_consumer_member_exchanges_a_topic_that_was_made_anew() -> None:
    script = stable(0)
    anew = topic(1, "t2")
    script.step(TopicsLearned({"t": anew}))
    script.pass_ms(5_000)
    script.beat(2, [(anew, 0)])
    revoke = script.one(Revoke)
    script.serve(revoke)
    assign = script.one(Assign)
    assert revoke.partitions == assign.partitions == keys("t", 0)
    assert owned(script.beat(2)) == {(anew.topic_id, 0)}


def test_consumer_subscription_change_is_said_at_once() -> None:
    script = stable(0)
    script.subscribe("t", "u")
    assert script.one(AskTopics).topics == {"t", "u"}
    request = script.beat(1)
    assert list(request.subscribed_topic_names.names) == ["t", "u"]
    assert owned(request) is None
    script.step(Subscribed(frozenset("tu"), "^t.*"))
    assert script.beat(1).subscribed_topic_regex == "^t.*"
    script.subscribe("t", "u")
    request = script.beat(1)
    assert request.HasField("subscribed_topic_regex")
    assert request.subscribed_topic_regex == ""


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_consumer_member_that_was_put_out_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    script = stable(0)
    script.pass_ms(5_000)
    script.refuse(code)
    assert script.one(MembershipChanged) == MembershipChanged(-1, "")
    revoke = script.one(Revoke)
    assert (revoke.partitions, revoke.lost) == (keys("t", 0), True)
    assert not script.take(Call)
    script.serve(revoke)
    request = script.beat(7, [(T, 0)])
    assert (request.member_epoch, owned(request)) == (0, set())
    assert script.one(Assign).partitions == keys("t", 0)


def test_consumer_member_that_is_put_out_while_it_joins_backs_off() -> None:
    script = new()
    script.subscribe("t")
    script.refuse(ErrorCode.FENCED_MEMBER_EPOCH)
    assert not script.take(Call)
    script.pass_ms(BACKOFF_MS)
    assert script.beat(1).member_epoch == 0


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REQUEST,
    ],
)
def test_consumer_member_that_is_refused_ends_with_a_fatal_error(code: ErrorCode) -> None:
    script = stable(0, group_instance_id="i")
    script.pass_ms(5_000)
    script.refuse(code)
    reported = script.one(ReportError).error
    assert (reported.code, reported.error.fatal()) == (code, True)
    assert script.one(Revoke).lost
    script.pass_ms(100_000)
    script.poll()
    assert not script.take(Call) + script.take(ReportError)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_consumer_close_gives_the_partitions_up_before_the_member_leaves(instance_id: str | None, epoch: int) -> None:
    script = stable(0, group_instance_id=instance_id)
    script.step(Closing())
    revoke = script.one(Revoke)
    assert not revoke.lost
    script.pass_ms(5_000)
    script.beat(1)
    script.serve(revoke)
    call, request = script.call(pb.ConsumerGroupHeartbeatRequest)
    assert (request.member_epoch, request.HasField("group_instance_id")) == (epoch, instance_id is not None)
    assert script.one(MembershipChanged) == MembershipChanged(-1, "")
    assert not script.take(Left)
    script.fail(call)
    script.one(Left)


def test_consumer_close_leaves_when_the_coordinator_may_know_of_the_member() -> None:
    script = new()
    script.subscribe("t")
    call, _ = script.call(pb.ConsumerGroupHeartbeatRequest)
    script.fail(call)
    script.step(Closing())
    _, request = script.call(pb.ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -1
    never = new()
    never.step(Closing())
    never.one(Left)


def test_consumer_unsubscribe_leaves_and_a_later_subscription_joins_afresh() -> None:
    script = stable(0)
    script.step(Unsubscribed())
    script.poll()
    call, request = script.call(pb.ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -1
    script.subscribe("u")
    assert not script.take(Call)
    script.answer(call, pb.ConsumerGroupHeartbeatResponse())
    request = script.beat(1)
    assert (request.member_epoch, list(request.subscribed_topic_names.names)) == (0, ["u"])


def test_consumer_member_that_subscribes_again_before_it_has_left_is_given_its_partitions_again() -> None:
    script = stable(0)
    script.step(Unsubscribed())
    revoke = script.one(Revoke)
    script.subscribe("t")
    request = script.beat(1, [(T, 0)])
    assert (request.member_epoch, owned(request)) == (1, {(T.topic_id, 0)})
    script.serve(revoke)
    assert script.one(Assign).partitions == keys("t", 0)


def test_consumer_member_whose_application_does_not_poll_leaves_and_comes_back_with_it() -> None:
    script = stable(0)
    script.step(Polled())
    script.pass_ms(60_000)
    assert script.one(ReportError).error.code is ErrorCode._MAX_POLL_EXCEEDED
    call, request = script.call(pb.ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -1
    revoke = script.one(Revoke)
    assert revoke.lost
    script.answer(call, pb.ConsumerGroupHeartbeatResponse())
    script.pass_ms(100_000)
    assert not script.take(Call)
    script.serve(revoke)
    assert not script.take(Call)
    script.step(Polled())
    assert script.beat(1).member_epoch == 0


def test_consumer_late_answer_to_a_call_that_was_given_up_is_dropped() -> None:
    script = stable(0)
    script.pass_ms(5_000)
    late, _ = script.call(pb.ConsumerGroupHeartbeatRequest)
    script.fail(late)
    script.answer(late, pb.ConsumerGroupHeartbeatResponse(member_epoch=9, assignment=pb.MemberTopics()))
    assert not script.take(Revoke) + script.take(MembershipChanged)


@pytest.mark.parametrize("is_answered", [True, False])
def test_consumer_member_leaves_only_when_the_heartbeat_before_has_ended(is_answered: bool) -> None:
    script = stable()
    script.pass_ms(5_000)
    under_way, _ = script.call(pb.ConsumerGroupHeartbeatRequest)
    script.step(Closing())
    assert not script.take(Call)
    if is_answered:
        script.answer(under_way, pb.ConsumerGroupHeartbeatResponse(member_epoch=2, assignment=pb.MemberTopics()))
    else:
        script.fail(under_way)
    assert not script.take(Left)
    leaving, request = script.call(pb.ConsumerGroupHeartbeatRequest)
    assert request.member_epoch == -1
    script.answer(leaving, pb.ConsumerGroupHeartbeatResponse())
    script.one(Left)
    assert not script.take(Call)
