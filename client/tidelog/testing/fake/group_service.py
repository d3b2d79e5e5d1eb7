"""GroupService of the fake: each call waits on its thread until the groups have its answer."""

from __future__ import annotations

from typing import Any, TypeVar

import grpc

from tidelog.testing.fake.faults import Fault, Gate, error_message
from tidelog.testing.fake.groups import FakeGroups
from tidelog.testing.fake.log_service import NodeInfo
from tidelog.testing.fake.topics import NODE_ID, TopicTable
from tidelog.v1 import common_pb2, group_service_pb2_grpc
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for

R = TypeVar("R")


class GroupServicer(group_service_pb2_grpc.GroupServiceServicer):
    """Answers on the server's threads; `TopicTable.changed` guards all state."""

    def __init__(self, table: TopicTable, groups: FakeGroups, gate: Gate, info: NodeInfo) -> None:
        self._table = table
        self._groups = groups
        self._gate = gate
        self._info = info
        self._stopping = False

    def stop(self) -> None:
        """Let nobody wait any more."""
        with self._table.changed:
            self._stopping = True
            self._table.changed.notify_all()

    def FindCoordinator(  # noqa: N802
        self, request: pb.FindCoordinatorRequest, context: grpc.ServicerContext
    ) -> pb.FindCoordinatorResponse:
        """Name the one node."""
        return self._gate.serve("FindCoordinator", context, lambda fault: self._find(request, fault))

    def JoinGroup(  # noqa: N802
        self, request: pb.JoinGroupRequest, context: grpc.ServicerContext
    ) -> pb.JoinGroupResponse:
        """Wait until the group is complete."""
        return self._serve("JoinGroup", request, context, pb.JoinGroupResponse)

    def SyncGroup(  # noqa: N802
        self, request: pb.SyncGroupRequest, context: grpc.ServicerContext
    ) -> pb.SyncGroupResponse:
        """Wait for the leader's assignment."""
        return self._serve("SyncGroup", request, context, pb.SyncGroupResponse)

    def Heartbeat(  # noqa: N802
        self, request: pb.HeartbeatRequest, context: grpc.ServicerContext
    ) -> pb.HeartbeatResponse:
        """Keep a member in its group."""
        return self._serve("Heartbeat", request, context, pb.HeartbeatResponse)

    def LeaveGroup(  # noqa: N802
        self, request: pb.LeaveGroupRequest, context: grpc.ServicerContext
    ) -> pb.LeaveGroupResponse:
        """Take members out."""
        return self._serve("LeaveGroup", request, context, pb.LeaveGroupResponse)

    def ConsumerGroupHeartbeat(  # noqa: N802
        self, request: pb.ConsumerGroupHeartbeatRequest, context: grpc.ServicerContext
    ) -> pb.ConsumerGroupHeartbeatResponse:
        """Join, stay, or leave, by KIP-848's protocol."""
        return self._serve("ConsumerGroupHeartbeat", request, context, pb.ConsumerGroupHeartbeatResponse)

    def OffsetCommit(  # noqa: N802
        self, request: pb.OffsetCommitRequest, context: grpc.ServicerContext
    ) -> pb.OffsetCommitResponse:
        """Commit offsets."""
        return self._serve("OffsetCommit", request, context, pb.OffsetCommitResponse)

    def OffsetFetch(  # noqa: N802
        self, request: pb.OffsetFetchRequest, context: grpc.ServicerContext
    ) -> pb.OffsetFetchResponse:
        """Return what groups have committed."""

        def fetch(fault: Fault) -> pb.OffsetFetchResponse:
            results = [self._answer(group, context, fault) for group in request.groups]
            return pb.OffsetFetchResponse(groups=results)

        return self._gate.serve("OffsetFetch", context, fetch)

    def OffsetDelete(  # noqa: N802
        self, request: pb.OffsetDeleteRequest, context: grpc.ServicerContext
    ) -> pb.OffsetDeleteResponse:
        """Delete offsets."""
        return self._serve("OffsetDelete", request, context, pb.OffsetDeleteResponse)

    def ListGroups(  # noqa: N802
        self, request: pb.ListGroupsRequest, context: grpc.ServicerContext
    ) -> pb.ListGroupsResponse:
        """List the groups."""
        return self._serve("ListGroups", request, context, pb.ListGroupsResponse)

    def DescribeGroups(  # noqa: N802
        self, request: pb.DescribeGroupsRequest, context: grpc.ServicerContext
    ) -> pb.DescribeGroupsResponse:
        """Describe groups of the classic protocol."""
        return self._serve("DescribeGroups", request, context, pb.DescribeGroupsResponse)

    def ConsumerGroupDescribe(  # noqa: N802
        self, request: pb.ConsumerGroupDescribeRequest, context: grpc.ServicerContext
    ) -> pb.ConsumerGroupDescribeResponse:
        """Describe groups of KIP-848's protocol."""
        return self._serve("ConsumerGroupDescribe", request, context, pb.ConsumerGroupDescribeResponse)

    def DeleteGroups(  # noqa: N802
        self, request: pb.DeleteGroupsRequest, context: grpc.ServicerContext
    ) -> pb.DeleteGroupsResponse:
        """Delete groups without members."""
        return self._serve("DeleteGroups", request, context, pb.DeleteGroupsResponse)

    def _serve(self, api: str, request: Any, context: grpc.ServicerContext, expected: type[R]) -> R:
        response = self._gate.serve(api, context, lambda fault: self._answer(request, context, fault))
        assert isinstance(response, expected)
        return response

    def _answer(self, request: Any, context: grpc.ServicerContext, fault: Fault) -> Any:
        with self._table.changed:
            if fault.code is not ErrorCode.NONE and not fault.applied:
                return self._groups.refuse(request, fault.error())
            answer = self._groups.call(
                request, _client_id(context), _host(context), lambda: self._stopping or not context.is_active()
            )
            if fault.code is not ErrorCode.NONE:
                return self._groups.refuse(request, fault.error())
        if answer is None:
            raise error_for(ErrorCode._TRANSPORT, "the fake stops, or the caller has gone")
        return answer

    def _find(self, request: pb.FindCoordinatorRequest, fault: Fault) -> pb.FindCoordinatorResponse:
        return pb.FindCoordinatorResponse(coordinators=[self._find_one(g, fault) for g in request.group_ids])

    def _find_one(self, group_id: str, fault: Fault) -> pb.Coordinator:
        if fault.code is not ErrorCode.NONE:
            return pb.Coordinator(group_id=group_id, error=error_message(fault.error()), node_id=-1)
        endpoint = common_pb2.Endpoint(host=self._info.host, port=self._info.port)
        return pb.Coordinator(group_id=group_id, node_id=NODE_ID, endpoint=endpoint)


def _client_id(context: grpc.ServicerContext) -> str:
    """Return the user agent's first word, which is the client id."""
    agents = [str(value) for key, value in context.invocation_metadata() if key == "user-agent"]
    return agents[0].partition(" ")[0] if agents else ""


def _host(context: grpc.ServicerContext) -> str:
    """Return the caller's address as Kafka writes it."""
    return "/" + context.peer().partition(":")[2].rpartition(":")[0]
