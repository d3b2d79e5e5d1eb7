"""Requests of group members for groups of either protocol, and the conversion of empty groups.

Groups that have members are converted by the rules of :mod:`.migration`.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups import consumer_requests
from tidelog_node.groups.answers import refuse, refuse_write
from tidelog_node.groups.classic import ClassicGroup, joining, membership, syncing
from tidelog_node.groups.classic.persistence import group_record
from tidelog_node.groups.classic.persistence import tombstone as classic_tombstone
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.consumer.validation import check_request
from tidelog_node.groups.consumer_requests import encoded, known_topics
from tidelog_node.groups.events import GroupCall
from tidelog_node.groups.loaded_groups import LoadedGroup
from tidelog_node.groups.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tidelog_node.groups.migration import may_upgrade
from tidelog_node.groups.step import Effect, Step
from tidelog_node.shards.events import ShardRecord

_JOINING_EPOCH = 0


def join(loaded: LoadedGroup, call: GroupCall, request: JoinGroupRequest, step: Step) -> None:
    """Handle JoinGroup.

    Raises:
        TidelogError: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, and the errors of :func:`.classic.joining.join` or
            :func:`.consumer_requests.join`.
    """
    _check_group_id(request.group_id)
    _check_session_timeout(request.session_timeout_ms, step)
    group = loaded.group
    if isinstance(group, ConsumerGroup) and not group.is_empty:
        consumer_requests.join(loaded, group, call, request, step)
        return
    if request.member_id and (isinstance(group, ConsumerGroup) or not loaded.exists):
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"group {loaded.group_id} has no member {request.member_id!r}")
    if isinstance(group, ClassicGroup):
        joining.join(group, call, request, step)
    else:
        _join_converted(loaded, group, call, request, step)


def sync(loaded: LoadedGroup, call: GroupCall, request: SyncGroupRequest, step: Step) -> None:
    """Handle SyncGroup.

    Raises:
        TidelogError: INVALID_GROUP_ID, and the errors of :func:`.classic.syncing.sync` or
            :func:`.consumer_requests.sync`.
    """
    group = _with_members(loaded)
    if isinstance(group, ConsumerGroup):
        consumer_requests.sync(loaded, group, call, request, step)
    else:
        syncing.sync(group, call, request, step)


def heartbeat(loaded: LoadedGroup, call: GroupCall, request: HeartbeatRequest, step: Step) -> None:
    """Handle Heartbeat.

    Raises:
        TidelogError: INVALID_GROUP_ID, and the errors of :func:`.classic.membership.heartbeat` or
            :func:`.consumer_requests.heartbeat`.
    """
    group = _with_members(loaded)
    if isinstance(group, ConsumerGroup):
        consumer_requests.heartbeat(loaded, group, call, request, step)
    else:
        membership.heartbeat(group, call, request, step)


def leave(loaded: LoadedGroup, call: GroupCall, request: LeaveGroupRequest, step: Step) -> None:
    """Handle LeaveGroup.

    Raises:
        TidelogError: INVALID_GROUP_ID, or UNKNOWN_MEMBER_ID if the group does not exist.
    """
    group = _with_members(loaded)
    if isinstance(group, ConsumerGroup):
        consumer_requests.leave(loaded, group, call, request, step)
    else:
        membership.leave(group, call, request, step)


def consumer_heartbeat(
    loaded: LoadedGroup, call: GroupCall, request: ConsumerGroupHeartbeatRequest, step: Step
) -> None:
    """Handle ConsumerGroupHeartbeat.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND if the group does not use this protocol and cannot be converted,
            COORDINATOR_LOAD_IN_PROGRESS until the topics are known, and the errors of
            :meth:`.consumer.ConsumerGroup.heartbeat`.
    """
    known_topics(step)
    group, before = _consumer_group(loaded, request, step)
    consumer_requests.consumer_heartbeat(loaded, group, call, request, step, before)


def group_tombstones(loaded: LoadedGroup) -> list[ShardRecord]:
    """Return the records that delete a group but not its offsets."""
    if isinstance(loaded.group, ConsumerGroup):
        return encoded(loaded.group.tombstones())
    return [classic_tombstone(loaded.group_id)] if loaded.is_recorded or loaded.open_writes else []


def _join_converted(
    loaded: LoadedGroup, group: ConsumerGroup, call: GroupCall, request: JoinGroupRequest, step: Step
) -> None:
    classic = ClassicGroup(loaded.group_id)
    records = (*encoded(group.tombstones()), group_record(classic, {}))
    step.write(loaded.group_id, records, _JoinedConverted(loaded, group, classic, call, request))


@dataclass(frozen=True, slots=True)
class _JoinedConverted(Effect):
    """An empty consumer group that becomes a classic one, which a member then joins."""

    loaded: LoadedGroup
    group: ConsumerGroup
    classic: ClassicGroup
    call: GroupCall
    request: JoinGroupRequest

    def written(self, step: Step) -> None:
        self.loaded.group = self.classic
        try:
            joining.join(self.classic, self.call, self.request, step)
        except TidelogError as error:
            step.respond(self.call.call_id, refuse(self.request, error))

    def failed(self, step: Step, error: TidelogError) -> None:
        if self.loaded.group is self.group:
            step.respond(self.call.call_id, refuse_write(self.request, error))


def _consumer_group(
    loaded: LoadedGroup, request: ConsumerGroupHeartbeatRequest, step: Step
) -> tuple[ConsumerGroup, list[ShardRecord]]:
    """Return the group and the records that delete its previous form."""
    if isinstance(loaded.group, ConsumerGroup):
        return loaded.group, []
    # An invalid request is refused as such even if the group does not exist.
    check_request(request, step.settings.consumer_assignors)
    if request.member_epoch != _JOINING_EPOCH:
        if request.member_epoch > _JOINING_EPOCH and may_upgrade(loaded.group, step.settings):
            # The group was downgraded without this member. Kafka's GROUP_ID_NOT_FOUND would stop the consumer for good.
            text = f"group {loaded.group_id} has become a classic group, and has no member {request.member_id!r}"
            raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, text)
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {loaded.group_id} is not a consumer group")
    if not loaded.group.is_empty:
        return consumer_requests.upgrade(loaded.group, step)
    return ConsumerGroup(loaded.group_id, step.settings), group_tombstones(loaded)


def _with_members(loaded: LoadedGroup) -> ClassicGroup | ConsumerGroup:
    _check_group_id(loaded.group_id)
    group = loaded.group
    if loaded.exists if isinstance(group, ClassicGroup) else not group.is_empty:
        return group
    raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {loaded.group_id} with members")


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")


def _check_session_timeout(timeout_ms: int, step: Step) -> None:
    least_ms, greatest_ms = step.settings.group_min_session_timeout_ms, step.settings.group_max_session_timeout_ms
    if not least_ms <= timeout_ms <= greatest_ms:
        raise error_for(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session.timeout.ms {timeout_ms} must be from group.min.session.timeout.ms {least_ms} to "
            f"group.max.session.timeout.ms {greatest_ms}",
        )
