"""Requests of group members of both protocols to their coordinator. Errors are in the response, as in Kafka."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups import messages
from tidelog_node.handlers.group_calls import answer_of_group, call_group
from tidelog_node.shards.events import ClientIdentity

MOST_LEAVING = 25_000
"""The maximum number of members that one request removes. They are removed in one step of the coordinator."""


async def join_group(
    coordinator: GroupCoordinator, request: messages.JoinGroupRequest, client: ClientIdentity
) -> messages.JoinGroupResponse:
    """Join a group. The answer follows when the group is complete."""
    return await answer_of_group(coordinator, request, client, messages.JoinGroupResponse)


async def sync_group(
    coordinator: GroupCoordinator, request: messages.SyncGroupRequest, client: ClientIdentity
) -> messages.SyncGroupResponse:
    """Return a member's assignment. The answer follows when the group's leader has assigned."""
    return await answer_of_group(coordinator, request, client, messages.SyncGroupResponse)


async def heartbeat(
    coordinator: GroupCoordinator, request: messages.HeartbeatRequest, client: ClientIdentity
) -> messages.HeartbeatResponse:
    """Keep a member alive. While its group loads it counts as alive, as in Kafka's GroupCoordinatorService."""
    try:
        return await call_group(coordinator, request, client, messages.HeartbeatResponse)
    except TidelogError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return messages.HeartbeatResponse()
        return messages.HeartbeatResponse(error.detached())


async def leave_group(
    coordinator: GroupCoordinator, request: messages.LeaveGroupRequest, client: ClientIdentity
) -> messages.LeaveGroupResponse:
    """Remove members from a group. More than MOST_LEAVING are refused with INVALID_REQUEST."""
    count = len(request.members)
    if count > MOST_LEAVING:
        text = (
            f"the request takes {count} members out of group {request.group_id!r}, at most {MOST_LEAVING} are allowed"
        )
        return messages.LeaveGroupResponse(error=error_for(ErrorCode.INVALID_REQUEST, text))
    return await answer_of_group(coordinator, request, client, messages.LeaveGroupResponse)


async def consumer_group_heartbeat(
    coordinator: GroupCoordinator, request: messages.ConsumerGroupHeartbeatRequest, client: ClientIdentity
) -> messages.ConsumerGroupHeartbeatResponse:
    """Join, stay in, or leave a group by KIP-848's protocol."""
    return await answer_of_group(coordinator, request, client, messages.ConsumerGroupHeartbeatResponse)
