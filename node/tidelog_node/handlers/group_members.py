"""Requests of group members of both protocols to their coordinator. Errors are in the response, as in Kafka."""

from __future__ import annotations

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers.context import error_message
from tidelog_node.handlers.group_calls import answer_of_group, call_group

MOST_LEAVING = 25_000
"""The maximum number of members that one request removes. They are removed in one step of the coordinator."""


async def join_group(
    coordinator: GroupCoordinator, request: pb.JoinGroupRequest, client: ClientIdentity
) -> pb.JoinGroupResponse:
    """Join a group. The answer follows when the group is complete."""
    return await answer_of_group(coordinator, request, client, pb.JoinGroupResponse)


async def sync_group(
    coordinator: GroupCoordinator, request: pb.SyncGroupRequest, client: ClientIdentity
) -> pb.SyncGroupResponse:
    """Return a member's assignment. The answer follows when the group's leader has assigned."""
    return await answer_of_group(coordinator, request, client, pb.SyncGroupResponse)


async def heartbeat(
    coordinator: GroupCoordinator, request: pb.HeartbeatRequest, client: ClientIdentity
) -> pb.HeartbeatResponse:
    """Keep a member alive. While its group loads it counts as alive, as in Kafka's GroupCoordinatorService."""
    try:
        return await call_group(coordinator, request, client, pb.HeartbeatResponse)
    except TidelogError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return pb.HeartbeatResponse()
        return pb.HeartbeatResponse(error=error_message(error))


async def leave_group(
    coordinator: GroupCoordinator, request: pb.LeaveGroupRequest, client: ClientIdentity
) -> pb.LeaveGroupResponse:
    """Remove members from a group. More than MOST_LEAVING are refused with INVALID_REQUEST."""
    count = len(request.members)
    if count > MOST_LEAVING:
        text = (
            f"the request takes {count} members out of group {request.group_id!r}, at most {MOST_LEAVING} are allowed"
        )
        return pb.LeaveGroupResponse(error=error_message(error_for(ErrorCode.INVALID_REQUEST, text)))
    return await answer_of_group(coordinator, request, client, pb.LeaveGroupResponse)


async def consumer_group_heartbeat(
    coordinator: GroupCoordinator, request: pb.ConsumerGroupHeartbeatRequest, client: ClientIdentity
) -> pb.ConsumerGroupHeartbeatResponse:
    """Join, stay in, or leave a group by KIP-848's protocol."""
    return await answer_of_group(coordinator, request, client, pb.ConsumerGroupHeartbeatResponse)
