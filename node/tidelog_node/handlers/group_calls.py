"""Calls to the shards of one group or of several groups."""

from __future__ import annotations

from typing import TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups import messages
from tidelog_node.groups.answers import refuse
from tidelog_node.groups.events import GroupRequest, GroupResponse
from tidelog_node.shards.events import ClientIdentity

R = TypeVar("R", bound=GroupResponse)

_OfMembers = (
    messages.JoinGroupRequest
    | messages.SyncGroupRequest
    | messages.HeartbeatRequest
    | messages.LeaveGroupRequest
    | messages.ConsumerGroupHeartbeatRequest
)
_OfOffsets = (
    messages.OffsetCommitRequest
    | messages.TxnOffsetCommitRequest
    | messages.OffsetFetchGroup
    | messages.OffsetDeleteRequest
)
_PASSED_WITHOUT_ID = (messages.OffsetCommitRequest, messages.OffsetFetchGroup, messages.ConsumerGroupHeartbeatRequest)
"""Requests that allow an empty group id.

Old consumers commit offsets of the group ""; KIP-848 heartbeats with it have an error of their own
(GroupCoordinatorService).
"""


async def call_group(
    coordinator: GroupCoordinator, request: _OfMembers | _OfOffsets, client: ClientIdentity, kind: type[R]
) -> R:
    """Return the answer, of type ``kind``, of the shard of the request's group.

    Raises:
        TidelogError: INVALID_GROUP_ID, and the errors of :meth:`GroupCoordinator.call`.
    """
    if not isinstance(request, _PASSED_WITHOUT_ID):
        check_group_id(request.group_id)
    return await call_shard(coordinator, coordinator.shard_of(request.group_id), request, client, kind)


def check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID if a group's id is empty."""
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "a group's id must not be empty")


async def answer_of_group(
    coordinator: GroupCoordinator, request: _OfMembers | _OfOffsets, client: ClientIdentity, kind: type[R]
) -> R:
    """Return the answer of the shard of the request's group, or the refusal if the call fails."""
    try:
        return await call_group(coordinator, request, client, kind)
    except TidelogError as error:
        return refused(request, error, kind)


async def call_shard(
    coordinator: GroupCoordinator, shard: int, request: GroupRequest, client: ClientIdentity, kind: type[R]
) -> R:
    """Return the answer, of type ``kind``, of a shard.

    Raises:
        TidelogError: The errors of :meth:`GroupCoordinator.call`.
    """
    response = await coordinator.call(shard, request, client)
    assert isinstance(response, kind), response
    return response


def refused(request: GroupRequest, error: TidelogError, kind: type[R]) -> R:
    """Return the response, of type ``kind``, that refuses a request."""
    response = refuse(request, error)
    assert isinstance(response, kind), response
    return response
