"""The gRPC service of the group coordinator: it identifies callers and converts errors to statuses."""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.group_service_pb2_grpc import GroupServiceServicer
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import abort_with
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers import group_members, group_offsets, groups

logger = logging.getLogger(__name__)
Q = TypeVar("Q")
R = TypeVar("R")
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
_USER_AGENT = "user-agent"


class GroupService(GroupServiceServicer):
    """The service of group members and group administrators."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    async def FindCoordinator(  # noqa: N802, D102
        self, request: pb.FindCoordinatorRequest, context: _Context
    ) -> pb.FindCoordinatorResponse:
        return await self._answer(groups.find_coordinator, request, context)

    async def JoinGroup(  # noqa: N802, D102
        self, request: pb.JoinGroupRequest, context: _Context
    ) -> pb.JoinGroupResponse:
        return await self._answer(group_members.join_group, request, context)

    async def SyncGroup(  # noqa: N802, D102
        self, request: pb.SyncGroupRequest, context: _Context
    ) -> pb.SyncGroupResponse:
        return await self._answer(group_members.sync_group, request, context)

    async def Heartbeat(  # noqa: N802, D102
        self, request: pb.HeartbeatRequest, context: _Context
    ) -> pb.HeartbeatResponse:
        return await self._answer(group_members.heartbeat, request, context)

    async def LeaveGroup(  # noqa: N802, D102
        self, request: pb.LeaveGroupRequest, context: _Context
    ) -> pb.LeaveGroupResponse:
        return await self._answer(group_members.leave_group, request, context)

    async def ConsumerGroupHeartbeat(  # noqa: N802, D102
        self, request: pb.ConsumerGroupHeartbeatRequest, context: _Context
    ) -> pb.ConsumerGroupHeartbeatResponse:
        return await self._answer(group_members.consumer_group_heartbeat, request, context)

    async def OffsetCommit(  # noqa: N802, D102
        self, request: pb.OffsetCommitRequest, context: _Context
    ) -> pb.OffsetCommitResponse:
        return await self._answer(group_offsets.offset_commit, request, context)

    async def OffsetFetch(  # noqa: N802, D102
        self, request: pb.OffsetFetchRequest, context: _Context
    ) -> pb.OffsetFetchResponse:
        return await self._answer(group_offsets.offset_fetch, request, context)

    async def OffsetDelete(  # noqa: N802, D102
        self, request: pb.OffsetDeleteRequest, context: _Context
    ) -> pb.OffsetDeleteResponse:
        return await self._answer(group_offsets.offset_delete, request, context)

    async def ListGroups(  # noqa: N802, D102
        self, request: pb.ListGroupsRequest, context: _Context
    ) -> pb.ListGroupsResponse:
        return await self._answer(groups.list_groups, request, context)

    async def DescribeGroups(  # noqa: N802, D102
        self, request: pb.DescribeGroupsRequest, context: _Context
    ) -> pb.DescribeGroupsResponse:
        return await self._answer(groups.describe_groups, request, context)

    async def ConsumerGroupDescribe(  # noqa: N802, D102
        self, request: pb.ConsumerGroupDescribeRequest, context: _Context
    ) -> pb.ConsumerGroupDescribeResponse:
        return await self._answer(groups.consumer_group_describe, request, context)

    async def DeleteGroups(  # noqa: N802, D102
        self, request: pb.DeleteGroupsRequest, context: _Context
    ) -> pb.DeleteGroupsResponse:
        return await self._answer(groups.delete_groups, request, context)

    async def _answer(
        self, handler: Callable[[GroupCoordinator, Q, ClientIdentity], Awaitable[R]], request: Q, call: _Context
    ) -> R:
        try:
            return await handler(self._coordinator, request, client_of(call))
        except TidelogError as error:
            await abort_with(call, error)
        except Exception as error:
            logger.exception("A request of a group failed with an unexpected error")
            await abort_with(call, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}"))


def client_of(call: _Context) -> ClientIdentity:
    """Return the caller: the first word of the user agent as client id, and the host in Kafka's form (/1.2.3.4)."""
    agent = next((value for key, value in call.invocation_metadata() or () if key == _USER_AGENT), "")
    client_id = (agent if isinstance(agent, str) else agent.decode(errors="replace")).partition(" ")[0]
    return ClientIdentity(client_id, "/" + host_of(call.peer()))


def host_of(peer: str) -> str:
    """Return the address in gRPC's peer name, such as ipv4:10.0.0.1:5000 and ipv6:%5B::1%5D:5000."""
    address = urllib.parse.unquote(peer.partition(":")[2])
    return address.rpartition(":")[0].strip("[]") or address
