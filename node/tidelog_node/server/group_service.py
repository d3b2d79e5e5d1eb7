"""The gRPC service of the group coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.transport.message_codec import MessageCodec
from tidelog_foundation.transport.services import Call, Caller, Service
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.groups import messages as m
from tidelog_node.groups.events import ClientIdentity
from tidelog_node.handlers import group_members, group_offsets, groups

Q = TypeVar("Q")
R = TypeVar("R")


def group_service(coordinator: GroupCoordinator) -> Service:
    """Return the service of group members and group administrators."""

    def call(
        handler: Callable[[GroupCoordinator, Q, ClientIdentity], Awaitable[R]], request: type[Q], response: type[R]
    ) -> Call[Q, R]:
        codecs = codec_of(request), codec_of(response)
        return Call(lambda asked, caller: handler(coordinator, asked, client_of(caller)), *codecs)

    return Service(
        pb.DESCRIPTOR.services_by_name["GroupService"],
        {
            "FindCoordinator": call(groups.find_coordinator, m.FindCoordinatorRequest, m.FindCoordinatorResponse),
            "JoinGroup": call(group_members.join_group, m.JoinGroupRequest, m.JoinGroupResponse),
            "SyncGroup": call(group_members.sync_group, m.SyncGroupRequest, m.SyncGroupResponse),
            "Heartbeat": call(group_members.heartbeat, m.HeartbeatRequest, m.HeartbeatResponse),
            "LeaveGroup": call(group_members.leave_group, m.LeaveGroupRequest, m.LeaveGroupResponse),
            "ConsumerGroupHeartbeat": call(
                group_members.consumer_group_heartbeat,
                m.ConsumerGroupHeartbeatRequest,
                m.ConsumerGroupHeartbeatResponse,
            ),
            "OffsetCommit": call(group_offsets.offset_commit, m.OffsetCommitRequest, m.OffsetCommitResponse),
            "OffsetFetch": call(group_offsets.offset_fetch, m.OffsetFetchRequest, m.OffsetFetchResponse),
            "OffsetDelete": call(group_offsets.offset_delete, m.OffsetDeleteRequest, m.OffsetDeleteResponse),
            "ListGroups": call(groups.list_groups, m.ListGroupsRequest, m.ListGroupsResponse),
            "DescribeGroups": call(groups.describe_groups, m.DescribeGroupsRequest, m.DescribeGroupsResponse),
            "ConsumerGroupDescribe": call(
                groups.consumer_group_describe, m.ConsumerGroupDescribeRequest, m.ConsumerGroupDescribeResponse
            ),
            "DeleteGroups": call(groups.delete_groups, m.DeleteGroupsRequest, m.DeleteGroupsResponse),
        },
    )


def codec_of(kind: type[Q]) -> MessageCodec[Q, Any]:
    """Return the codec between a request or response and the message of the same name."""
    return MessageCodec(kind, getattr(pb, kind.__name__))


def client_of(caller: Caller) -> ClientIdentity:
    """Return the caller with its host in Kafka's form (/1.2.3.4)."""
    return ClientIdentity(caller.client_id, "/" + caller.host)
