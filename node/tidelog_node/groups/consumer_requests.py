"""Requests of members of consumer groups, and the writes that convert a group by the rules of :mod:`.migration`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.classic import ClassicGroup, ClassicState
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.persistence import tombstone as classic_tombstone
from tidelog_node.groups.classic.rebalance import prepare_rebalance, refuse_join, refuse_sync, reset_session
from tidelog_node.groups.consumer import ConsumerGroup, Record
from tidelog_node.groups.consumer.classic_members import leaving_member
from tidelog_node.groups.consumer_events import replay_and_report, report_removed
from tidelog_node.groups.events import GroupCall, TopicInfo
from tidelog_node.groups.loaded_groups import LoadedGroup
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
from tidelog_node.groups.step import Answer, Effect, Step
from tidelog_node.shards.events import ShardRecord

_LEAVE_GROUP_EPOCH = -1


def join(loaded: LoadedGroup, group: ConsumerGroup, call: GroupCall, request: JoinGroupRequest, step: Step) -> None:
    """Handle JoinGroup of a consumer group with members. The answer follows when its records are committed.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS until the topics are known, and the errors of
            :meth:`.consumer.ConsumerGroup.join`.
    """
    instance_id = call.client.client_id if request.group_instance_id is None else request.group_instance_id
    new_id = step.new_member_id(instance_id)
    result = group.join(request, call.client, known_topics(step), new_id, step.now_ms, step.wall_ms)

    answer = Answer(call.call_id, request, result.response)
    if result.records:
        step.write(
            loaded.group_id,
            encoded(result.records),
            _Changed(loaded, group, result.records, may_downgrade=True),
            answer,
        )
    else:
        loaded.answer(step, answer)


def sync(loaded: LoadedGroup, group: ConsumerGroup, call: GroupCall, request: SyncGroupRequest, step: Step) -> None:
    """Handle SyncGroup of a consumer group with members.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS until the topics are known, and the errors of
            :meth:`.consumer.ConsumerGroup.sync`.
    """
    response = group.sync(request, known_topics(step), step.now_ms)
    loaded.answer(step, Answer(call.call_id, request, response))


def heartbeat(
    loaded: LoadedGroup, group: ConsumerGroup, call: GroupCall, request: HeartbeatRequest, step: Step
) -> None:
    """Handle Heartbeat of a consumer group with members.

    Raises:
        TidelogError: The errors of :meth:`.consumer.ConsumerGroup.classic_heartbeat`.
    """
    group.classic_heartbeat(request, step.now_ms)
    loaded.answer(step, Answer(call.call_id, request, HeartbeatResponse()))


def leave(loaded: LoadedGroup, group: ConsumerGroup, call: GroupCall, request: LeaveGroupRequest, step: Step) -> None:
    """Handle LeaveGroup of a consumer group with members. Each member has a result of its own (KIP-345)."""
    leaving: dict[str, str] = {}
    results: list[LeftMember] = []
    for each in request.members:
        result = LeftMember(each.member_id, each.group_instance_id)
        try:
            leaving[leaving_member(group.state, each).member_id] = each.reason or "it sent LeaveGroup"
        except TidelogError as error:
            result = replace(result, error=error.detached())
        results.append(result)
    answer = Answer(call.call_id, request, LeaveGroupResponse(members=tuple(results)))
    if leaving:
        _remove(loaded, group, leaving, group.remove(leaving, step.wall_ms).records, step, answer)
    else:
        loaded.answer(step, answer)


def consumer_heartbeat(
    loaded: LoadedGroup,
    group: ConsumerGroup,
    call: GroupCall,
    request: ConsumerGroupHeartbeatRequest,
    step: Step,
    before: Sequence[ShardRecord] = (),
) -> None:
    """Handle ConsumerGroupHeartbeat. The answer follows when all of the group's writes are committed.

    ``group`` may be new; ``before`` contains the records that convert its previous form.

    Raises:
        TidelogError: The errors of :meth:`.consumer.ConsumerGroup.heartbeat`.
    """
    result = group.heartbeat(request, call.client, known_topics(step), step.now_ms, step.wall_ms)

    answer = Answer(call.call_id, request, result.response)
    if not result.records:
        loaded.answer(step, answer)
    elif request.member_epoch == _LEAVE_GROUP_EPOCH:
        _remove(loaded, group, {request.member_id: "it sent a heartbeat that leaves"}, result.records, step, answer)
    else:
        change = _Changed(loaded, group, result.records)
        step.write(loaded.group_id, (*before, *encoded(result.records)), change, answer)


def upgrade(group: ClassicGroup, step: Step) -> tuple[ConsumerGroup, list[ShardRecord]]:
    """Return a classic group with members as a consumer group, and the records of the conversion.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND: the group cannot be converted.
    """
    records = upgraded(group, known_topics(step), step.settings, step.wall_ms)
    consumer = ConsumerGroup(group.group_id, step.settings)
    replay(consumer, records)
    return consumer, [classic_tombstone(group.group_id), *encoded(records)]


def expire(loaded: LoadedGroup, group: ConsumerGroup, step: Step) -> None:
    """Remove the members whose deadlines have passed."""
    expired = group.expired(step.now_ms)
    if expired:
        _remove(loaded, group, expired, group.remove(expired, step.wall_ms).records, step)


def known_topics(step: Step) -> Mapping[str, TopicInfo]:
    """Return the topics of the cluster. Without them every topic would count as deleted.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS.
    """
    if step.topics is None:
        raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics of the cluster are not known yet")
    return step.topics


def encoded(records: Iterable[Record]) -> list[ShardRecord]:
    """Return the records in their encoded form."""
    return [encode(key, value) for key, value in records]


def replay(group: ConsumerGroup, records: Iterable[Record]) -> None:
    """Replay records into a group."""
    for key, value in records:
        group.replay(key, value)


def _remove(
    loaded: LoadedGroup,
    group: ConsumerGroup,
    reasons: Mapping[str, str],
    records: Sequence[Record],
    step: Step,
    *answers: Answer,
) -> None:
    """Write the removal of members, by their ids. Without a member of the consumer protocol the group becomes a classic
    one.
    """
    classic = _downgraded(group, reasons, step)
    if classic is None:
        step.write(loaded.group_id, encoded(records), _Changed(loaded, group, records, reasons), *answers)
    else:
        _write_downgrade(loaded, group, classic, reasons, step, *answers)


@dataclass(frozen=True, slots=True)
class _Changed(Effect):
    """Records of a consumer group to replay. A classic group of this id becomes the consumer group.

    ``reasons`` tells why members are removed. ``may_downgrade``: a classic
    member may have replaced the last member of the consumer protocol.
    """

    loaded: LoadedGroup
    group: ConsumerGroup
    records: Sequence[Record]
    reasons: Mapping[str, str] = field(default_factory=dict)
    may_downgrade: bool = False

    def written(self, step: Step) -> None:
        if isinstance(self.loaded.group, ClassicGroup):
            _end(self.loaded.group, step)
        self.loaded.group = self.group
        replay_and_report(self.group, self.records, self.reasons, step)
        classic = _downgraded(self.group, (), step) if self.may_downgrade else None
        if classic is not None:
            _write_downgrade(self.loaded, self.group, classic, {}, step)


@dataclass(frozen=True, slots=True)
class _Downgraded(Effect):
    """A consumer group that becomes a classic one. ``reasons`` tells why members are not part of it."""

    loaded: LoadedGroup
    group: ConsumerGroup
    classic: ClassicGroup
    reasons: Mapping[str, str]

    def written(self, step: Step) -> None:
        self.loaded.group = self.classic
        removed = sorted(self.group.state.members.keys() - self.classic.members.keys())
        report_removed(self.group, removed, self.reasons, step)
        text = "Group %s: it has become a classic group with %d members"
        step.report(text, self.classic.group_id, len(self.classic.members))
        for member in self.classic.members.values():
            reset_session(self.classic, member, step)
        if self.classic.must_rebalance:
            prepare_rebalance(self.classic, step, "the group has become a classic one")


def _downgraded(group: ConsumerGroup, leaving: Collection[str], step: Step) -> ClassicGroup | None:
    if step.topics is None:
        return None
    return downgraded(group.state, leaving, step.topics, step.settings, step.wall_ms)


def _write_downgrade(
    loaded: LoadedGroup,
    group: ConsumerGroup,
    classic: ClassicGroup,
    reasons: Mapping[str, str],
    step: Step,
    *answers: Answer,
) -> None:
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    records = (*encoded(group.tombstones()), group_record(classic, assignments))
    step.write(loaded.group_id, records, _Downgraded(loaded, group, classic, reasons), *answers)


def _end(group: ClassicGroup, step: Step) -> None:
    """End a classic group that has become a consumer group. Waiting members receive an error and join again."""
    if group.members:
        text = "Group %s: it has become a consumer group with %d members of the classic protocol"
        step.report(text, group.group_id, len(group.members))
    for member in group.members.values():
        refuse_join(member, step, ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        refuse_sync(member, step, ErrorCode.REBALANCE_IN_PROGRESS)
    group.transition_to(ClassicState.DEAD, step.wall_ms)
