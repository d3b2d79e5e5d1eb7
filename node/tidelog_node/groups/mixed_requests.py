"""Requests of members of consumer groups, and the writes that convert a group by the rules of :mod:`.migration`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.answers import refuse, write_error
from tidelog_node.groups.classic import ClassicGroup, ClassicState
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.persistence import tombstone as classic_tombstone
from tidelog_node.groups.classic.rebalance import prepare_rebalance, refuse_join, refuse_sync, reset_session
from tidelog_node.groups.consumer import ConsumerGroup, Record
from tidelog_node.groups.consumer.classic_members import leaving_member
from tidelog_node.groups.events import GroupRecord, RequestReceived, TopicInfo
from tidelog_node.groups.held import HeldGroup
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    SyncGroupRequest,
)
from tidelog_node.groups.migration import downgraded, upgraded
from tidelog_node.groups.records import encode
from tidelog_node.groups.turn import Turn

Answer: TypeAlias = Callable[[Turn, TidelogError | None], None]
_LEAVE_GROUP_EPOCH = -1


def join(held: HeldGroup, group: ConsumerGroup, call: RequestReceived, request: JoinGroupRequest, turn: Turn) -> None:
    """Handle JoinGroup of a consumer group with members. The answer follows when its records are committed.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS until the topics are known, and the errors of
            :meth:`.consumer.ConsumerGroup.join`.
    """
    instance_id = call.client.client_id if request.group_instance_id is None else request.group_instance_id
    new_id = turn.new_member_id(instance_id)
    result = group.join(request, call.client, known_topics(turn), new_id, turn.now_ms, turn.wall_ms)

    def answer(turn: Turn, error: TidelogError | None) -> None:
        turn.respond(call.call_id, result.response if error is None else refuse(request, write_error(error)))

    def written(turn: Turn) -> None:
        replay(group, result.records)
        # The member may have replaced the last member of the consumer protocol.
        classic = _downgraded(group, (), turn)
        if classic is not None:
            _write_downgrade(held, group, classic, turn)

    if result.records:
        _write(held, encoded(result.records), written, answer, turn)
    else:
        held.after_writes(turn, answer)


def sync(held: HeldGroup, group: ConsumerGroup, call: RequestReceived, request: SyncGroupRequest, turn: Turn) -> None:
    """Handle SyncGroup of a consumer group with members.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS until the topics are known, and the errors of
            :meth:`.consumer.ConsumerGroup.sync`.
    """
    response = group.sync(request, known_topics(turn), turn.now_ms)

    def answer(turn: Turn, error: TidelogError | None) -> None:
        turn.respond(call.call_id, response if error is None else refuse(request, write_error(error)))

    held.after_writes(turn, answer)


def heartbeat(
    held: HeldGroup, group: ConsumerGroup, call: RequestReceived, request: HeartbeatRequest, turn: Turn
) -> None:
    """Handle Heartbeat of a consumer group with members.

    Raises:
        TidelogError: The errors of :meth:`.consumer.ConsumerGroup.classic_heartbeat`.
    """
    group.classic_heartbeat(request, turn.now_ms)

    def answer(turn: Turn, error: TidelogError | None) -> None:
        response = HeartbeatResponse() if error is None else refuse(request, write_error(error))
        turn.respond(call.call_id, response)

    held.after_writes(turn, answer)


def leave(held: HeldGroup, group: ConsumerGroup, call: RequestReceived, request: LeaveGroupRequest, turn: Turn) -> None:
    """Handle LeaveGroup of a consumer group with members. Each member has a result of its own (KIP-345)."""
    leaving: set[str] = set()
    results: list[LeftMember] = []
    for each in request.members:
        result = LeftMember(each.member_id, each.group_instance_id)
        try:
            leaving.add(leaving_member(group.state, each).member_id)
        except TidelogError as error:
            result = replace(result, error=error.detached())
        results.append(result)
    response = LeaveGroupResponse(members=tuple(results))

    def answer(turn: Turn, error: TidelogError | None) -> None:
        turn.respond(call.call_id, response if error is None else refuse(request, write_error(error)))

    if leaving:
        _remove(held, group, leaving, group.remove(leaving, turn.wall_ms).records, answer, turn)
    else:
        held.after_writes(turn, answer)


def consumer_heartbeat(
    held: HeldGroup,
    group: ConsumerGroup,
    call: RequestReceived,
    request: ConsumerGroupHeartbeatRequest,
    turn: Turn,
    before: Sequence[GroupRecord] = (),
) -> None:
    """Handle ConsumerGroupHeartbeat. The answer follows when all of the group's writes are committed.

    ``group`` may be new; ``before`` contains the records that convert its previous form.

    Raises:
        TidelogError: The errors of :meth:`.consumer.ConsumerGroup.heartbeat`.
    """
    result = group.heartbeat(request, call.client, known_topics(turn), turn.now_ms, turn.wall_ms)

    def answer(turn: Turn, error: TidelogError | None) -> None:
        turn.respond(call.call_id, result.response if error is None else refuse(request, write_error(error)))

    def written(turn: Turn) -> None:
        if isinstance(held.group, ClassicGroup):
            _end(held.group, turn)
        held.group = group
        replay(group, result.records)

    if not result.records:
        held.after_writes(turn, answer)
    elif request.member_epoch == _LEAVE_GROUP_EPOCH:
        _remove(held, group, (request.member_id,), result.records, answer, turn)
    else:
        _write(held, (*before, *encoded(result.records)), written, answer, turn)


def upgrade(group: ClassicGroup, turn: Turn) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return a classic group with members as a consumer group, and the records of the conversion.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND: the group cannot be converted.
    """
    records = upgraded(group, known_topics(turn), turn.settings, turn.wall_ms)
    consumer = ConsumerGroup(group.group_id, turn.settings)
    replay(consumer, records)
    return consumer, [classic_tombstone(group.group_id), *encoded(records)]


def expire(held: HeldGroup, group: ConsumerGroup, turn: Turn) -> None:
    """Remove the members whose deadlines have passed."""
    expired = group.expired(turn.now_ms)
    if expired:
        _remove(held, group, expired, group.remove(expired, turn.wall_ms).records, None, turn)


def known_topics(turn: Turn) -> Mapping[str, TopicInfo]:
    """Return the topics of the cluster. Without them every topic would count as deleted.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS.
    """
    if turn.topics is None:
        raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics of the cluster are not known yet")
    return turn.topics


def encoded(records: Iterable[Record]) -> list[GroupRecord]:
    """Return the records in their encoded form."""
    return [encode(key, value) for key, value in records]


def replay(group: ConsumerGroup, records: Iterable[Record]) -> None:
    """Replay records into a group."""
    for key, value in records:
        group.replay(key, value)


def _remove(
    held: HeldGroup,
    group: ConsumerGroup,
    member_ids: Collection[str],
    records: Sequence[Record],
    answer: Answer | None,
    turn: Turn,
) -> None:
    """Write the removal of members. Without a member of the consumer protocol the group becomes a classic one."""
    classic = _downgraded(group, member_ids, turn)
    if classic is None:
        _write(held, encoded(records), lambda _: replay(group, records), answer, turn)
    else:
        _write_downgrade(held, group, classic, turn, answer)


def _downgraded(group: ConsumerGroup, leaving: Collection[str], turn: Turn) -> ClassicGroup | None:
    if turn.topics is None:
        return None
    return downgraded(group.state, leaving, turn.topics, turn.settings, turn.wall_ms)


def _write_downgrade(
    held: HeldGroup, group: ConsumerGroup, classic: ClassicGroup, turn: Turn, answer: Answer | None = None
) -> None:
    def written(turn: Turn) -> None:
        held.group = classic
        for member in classic.members.values():
            reset_session(classic, member, turn)
        if classic.must_rebalance:
            prepare_rebalance(classic, turn)

    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    records = (*encoded(group.tombstones()), group_record(classic, assignments))
    _write(held, records, written, answer, turn)


def _write(
    held: HeldGroup,
    records: Iterable[GroupRecord],
    written: Callable[[Turn], None],
    answer: Answer | None,
    turn: Turn,
) -> None:
    turn.write(
        held.group_id,
        records,
        on_written=written,
        on_committed=None if answer is None else lambda turn: answer(turn, None),
        on_failed=answer,
    )


def _end(group: ClassicGroup, turn: Turn) -> None:
    """End a classic group that has become a consumer group. Waiting members receive an error and join again."""
    for member in group.members.values():
        refuse_join(member, turn, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        refuse_sync(member, turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.transition_to(ClassicState.DEAD, turn.wall_ms)
