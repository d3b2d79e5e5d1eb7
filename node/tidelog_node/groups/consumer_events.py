"""The log lines about the members and epochs of consumer groups, which the records of a change show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog_node.groups.consumer import ConsumerGroup, Record
from tidelog_node.groups.consumer.member import LEAVE_GROUP_STATIC_EPOCH
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from tidelog_node.groups.step import Step

_SETTLED = ("Stable", "Empty")


def replay_and_report(group: ConsumerGroup, records: Sequence[Record], reasons: Mapping[str, str], step: Step) -> None:
    """Replay records that are in the log, and report their changes. ``reasons`` tells why members are removed."""
    state, epoch, name = group.state, group.state.group_epoch, group.state_name
    lines = [*_member_lines(state, records, reasons), *_static_lines(state, records)]
    for key, value in records:
        group.replay(key, value)
    for text, *arguments in lines:
        step.report(text, *arguments)
    if state.group_epoch != epoch:
        text = "Group %s: epoch %d begins with %d members"
        step.report(text, group.group_id, state.group_epoch, len(state.members))
    if group.state_name in _SETTLED and (state.group_epoch, group.state_name) != (epoch, name):
        text = "Group %s: the rebalance ended in epoch %d with %d members"
        step.report(text, group.group_id, state.group_epoch, len(state.members))


def report_removed(group: ConsumerGroup, member_ids: Sequence[str], reasons: Mapping[str, str], step: Step) -> None:
    """Report members that are not part of the classic group that a consumer group has become."""
    for member_id in member_ids:
        step.report(*_left(group.state, member_id, reasons.get(member_id, "it was removed")))


def _member_lines(
    state: GroupState, records: Sequence[Record], reasons: Mapping[str, str]
) -> Iterator[tuple[str, *tuple[object, ...]]]:
    joined: dict[str, ConsumerGroupMemberMetadataValue] = {}
    removed: list[str] = []
    for key, value in records:
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            if isinstance(value, ConsumerGroupMemberMetadataValue):
                if key.member_id not in state.members:
                    joined[key.member_id] = value
            elif key.member_id in state.members:
                removed.append(key.member_id)
    successors = {value.instance_id: member_id for member_id, value in joined.items() if value.instance_id is not None}
    for member_id in removed:
        successor = successors.get(state.members[member_id].metadata.instance_id or "")
        reason = reasons.get(member_id, "it was removed") if successor is None else f"{successor} replaces it"
        yield _left(state, member_id, reason)
    for member_id, value in joined.items():
        who = member_id, value.instance_id, value.client_host, value.client_id
        yield "Group %s: member %s with instance id %s joined from %s, client id %s", state.group_id, *who


def _static_lines(state: GroupState, records: Sequence[Record]) -> Iterator[tuple[str, *tuple[object, ...]]]:
    for key, value in records:
        if not isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            continue
        assert isinstance(key, ConsumerGroupCurrentMemberAssignmentKey)
        before = state.members.get(key.member_id)
        if before is None:
            continue
        was_away = before.member_epoch == LEAVE_GROUP_STATIC_EPOCH
        is_away = value.member_epoch == LEAVE_GROUP_STATIC_EPOCH
        if is_away and not was_away:
            text = "Group %s: static member %s left in epoch %d, and keeps its partitions until its session expires"
            yield text, state.group_id, key.member_id, state.group_epoch
        elif was_away and not is_away:
            yield "Group %s: static member %s returned", state.group_id, key.member_id


def _left(state: GroupState, member_id: str, reason: str) -> tuple[str, *tuple[object, ...]]:
    return "Group %s: member %s left in epoch %d: %s", state.group_id, member_id, state.group_epoch, reason
