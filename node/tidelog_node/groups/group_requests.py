"""Requests of group members for groups of either protocol, and the conversion of empty groups.

Groups that have members are converted by the rules of :mod:`.migration`.
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups import mixed_requests
from tidelog_node.groups.answers import refuse, write_error
from tidelog_node.groups.classic import ClassicGroup, joining, membership, syncing
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.persistence import tombstone as classic_tombstone
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.consumer.requests import check_request
from tidelog_node.groups.events import GroupRecord, RequestReceived
from tidelog_node.groups.held import HeldGroup
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tidelog_node.groups.migration import may_upgrade
from tidelog_node.groups.mixed_requests import encoded, known_topics
from tidelog_node.groups.turn import Turn

_JOINING_EPOCH = 0


def join(held: HeldGroup, call: RequestReceived, request: JoinGroupRequest, turn: Turn) -> None:
    """Handle JoinGroup.

    Raises:
        TidelogError: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, and the errors of :func:`.classic.joining.join` or
            :func:`.mixed_requests.join`.
    """
    _check_group_id(request.group_id)
    _check_session_timeout(request.session_timeout_ms, turn)
    group = held.group
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        mixed_requests.join(held, group, call, request, turn)
        return
    if request.member_id and (isinstance(group, ConsumerGroup) or not held.exists):
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"group {held.group_id} has no member {request.member_id!r}")
    if isinstance(group, ClassicGroup):
        joining.join(group, call, request, turn)
    else:
        _join_converted(held, group, call, request, turn)


def sync(held: HeldGroup, call: RequestReceived, request: SyncGroupRequest, turn: Turn) -> None:
    """Handle SyncGroup.

    Raises:
        TidelogError: INVALID_GROUP_ID, and the errors of :func:`.classic.syncing.sync` or :func:`.mixed_requests.sync`.
    """
    group = _with_members(held)
    if isinstance(group, ConsumerGroup):
        mixed_requests.sync(held, group, call, request, turn)
    else:
        syncing.sync(group, call, request, turn)


def heartbeat(held: HeldGroup, call: RequestReceived, request: HeartbeatRequest, turn: Turn) -> None:
    """Handle Heartbeat.

    Raises:
        TidelogError: INVALID_GROUP_ID, and the errors of :func:`.classic.membership.heartbeat` or
            :func:`.mixed_requests.heartbeat`.
    """
    group = _with_members(held)
    if isinstance(group, ConsumerGroup):
        mixed_requests.heartbeat(held, group, call, request, turn)
    else:
        membership.heartbeat(group, call, request, turn)


def leave(held: HeldGroup, call: RequestReceived, request: LeaveGroupRequest, turn: Turn) -> None:
    """Handle LeaveGroup.

    Raises:
        TidelogError: INVALID_GROUP_ID, or UNKNOWN_MEMBER_ID if the group does not exist.
    """
    group = _with_members(held)
    if isinstance(group, ConsumerGroup):
        mixed_requests.leave(held, group, call, request, turn)
    else:
        membership.leave(group, call, request, turn)


def consumer_heartbeat(
    held: HeldGroup, call: RequestReceived, request: ConsumerGroupHeartbeatRequest, turn: Turn
) -> None:
    """Handle ConsumerGroupHeartbeat.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND if the group does not use this protocol and cannot be converted,
            COORDINATOR_LOAD_IN_PROGRESS until the topics are known, and the errors of
            :meth:`.consumer.ConsumerGroup.heartbeat`.
    """
    known_topics(turn)
    group, before = _consumer_group(held, request, turn)
    mixed_requests.consumer_heartbeat(held, group, call, request, turn, before)


def group_tombstones(held: HeldGroup) -> list[GroupRecord]:
    """Return the records that delete a group but not its offsets."""
    if isinstance(held.group, ConsumerGroup):
        return encoded(held.group.tombstones())
    return [classic_tombstone(held.group_id)] if held.is_recorded or held.open_writes else []


def _join_converted(
    held: HeldGroup, group: ConsumerGroup, call: RequestReceived, request: JoinGroupRequest, turn: Turn
) -> None:
    classic = ClassicGroup(held.group_id)

    def written(turn: Turn) -> None:
        held.group = classic
        try:
            joining.join(classic, call, request, turn)
        except TidelogError as error:
            turn.respond(call.call_id, refuse(request, error))

    def failed(turn: Turn, error: TidelogError) -> None:
        if held.group is group:
            turn.respond(call.call_id, refuse(request, write_error(error)))

    records = (*encoded(group.tombstones()), group_record(classic, {}))
    turn.write(held.group_id, records, on_written=written, on_failed=failed)


def _consumer_group(
    held: HeldGroup, request: ConsumerGroupHeartbeatRequest, turn: Turn
) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return the group and the records that delete its previous form."""
    if isinstance(held.group, ConsumerGroup):
        return held.group, []
    # An invalid request is refused as such even if the group does not exist.
    check_request(request, turn.settings.consumer_assignors)
    if request.member_epoch != _JOINING_EPOCH:
        if request.member_epoch > _JOINING_EPOCH and may_upgrade(held.group, turn.settings):
            # The group was downgraded without this member. Kafka's GROUP_ID_NOT_FOUND would stop the consumer for good.
            text = f"group {held.group_id} has become a classic group, and has no member {request.member_id!r}"
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, text)
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {held.group_id} is not a consumer group")
    if not held.group.is_empty:
        return mixed_requests.upgrade(held.group, turn)
    return ConsumerGroup(held.group_id, turn.settings), group_tombstones(held)


def _with_members(held: HeldGroup) -> ClassicGroup | ConsumerGroup:
    _check_group_id(held.group_id)
    group = held.group
    if held.exists if isinstance(group, ClassicGroup) else not group.is_empty:
        return group
    raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {held.group_id} with members")


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")


def _check_session_timeout(timeout_ms: int, turn: Turn) -> None:
    least_ms, greatest_ms = turn.settings.group_min_session_timeout_ms, turn.settings.group_max_session_timeout_ms
    if not least_ms <= timeout_ms <= greatest_ms:
        raise error_for(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session.timeout.ms {timeout_ms} must be from group.min.session.timeout.ms {least_ms} to "
            f"group.max.session.timeout.ms {greatest_ms}",
        )
