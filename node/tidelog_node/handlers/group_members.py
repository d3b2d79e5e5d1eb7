"""What members of groups ask of their coordinator, by both protocols. An error is in the response, as in Kafka."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError
from tidelog.v1 import group_service_pb2 as pb
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers.context import error_message
from tidelog_node.handlers.group_calls import answer_of_group, call_group


async def join_group(
    coordinator: GroupCoordinator, request: pb.JoinGroupRequest, client: ClientIdentity
) -> pb.JoinGroupResponse:
    """Join a group; answered when the group is complete."""
    return await answer_of_group(coordinator, request, client, pb.JoinGroupResponse)


async def sync_group(
    coordinator: GroupCoordinator, request: pb.SyncGroupRequest, client: ClientIdentity
) -> pb.SyncGroupResponse:
    """Get what a member is assigned; answered when the group's leader has assigned."""
    return await answer_of_group(coordinator, request, client, pb.SyncGroupResponse)


async def heartbeat(
    coordinator: GroupCoordinator, request: pb.HeartbeatRequest, client: ClientIdentity
) -> pb.HeartbeatResponse:
    """Keep a member alive. While its group is being loaded it is taken to be, as in Kafka's GroupCoordinatorService."""
    try:
        return await call_group(coordinator, request, client, pb.HeartbeatResponse)
    except TidelogError as error:
        if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return pb.HeartbeatResponse()
        return pb.HeartbeatResponse(error=error_message(error))


async def leave_group(
    coordinator: GroupCoordinator, request: pb.LeaveGroupRequest, client: ClientIdentity
) -> pb.LeaveGroupResponse:
    """Take members out of a group."""
    return await answer_of_group(coordinator, request, client, pb.LeaveGroupResponse)


async def consumer_group_heartbeat(
    coordinator: GroupCoordinator, request: pb.ConsumerGroupHeartbeatRequest, client: ClientIdentity
) -> pb.ConsumerGroupHeartbeatResponse:
    """Join, stay in, or leave a group by KIP-848's protocol."""
    return await answer_of_group(coordinator, request, client, pb.ConsumerGroupHeartbeatResponse)
