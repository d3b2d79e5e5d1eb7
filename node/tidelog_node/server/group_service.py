"""The gRPC service of the group coordinator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.transport.services import Call, Caller, Service, types_of
from tidelog_node.coordination import GroupCoordinator, TransactionCoordinator
from tidelog_node.handlers import group_members, group_offsets, groups
from tidelog_node.shards.events import ClientIdentity

Q = TypeVar("Q")
R = TypeVar("R")


def group_service(coordinator: GroupCoordinator, transactions: TransactionCoordinator) -> Service:
    """Return the service of group members and group administrators. It also finds coordinators of transactions."""

    def call(handler: Callable[[GroupCoordinator, Q, ClientIdentity], Awaitable[R]]) -> Call[Q, R]:
        return Call(lambda request, caller: handler(coordinator, request, client_of(caller)), *types_of(handler))

    return Service(
        pb.DESCRIPTOR.services_by_name["GroupService"],
        {
            "FindCoordinator": Call(
                lambda request, _: groups.find_coordinator(coordinator, transactions, request),
                *types_of(groups.find_coordinator),
            ),
            "JoinGroup": call(group_members.join_group),
            "SyncGroup": call(group_members.sync_group),
            "Heartbeat": call(group_members.heartbeat),
            "LeaveGroup": call(group_members.leave_group),
            "ConsumerGroupHeartbeat": call(group_members.consumer_group_heartbeat),
            "OffsetCommit": call(group_offsets.offset_commit),
            "TxnOffsetCommit": call(group_offsets.txn_offset_commit),
            "OffsetFetch": call(group_offsets.offset_fetch),
            "OffsetDelete": call(group_offsets.offset_delete),
            "ListGroups": call(groups.list_groups),
            "DescribeGroups": call(groups.describe_groups),
            "ConsumerGroupDescribe": call(groups.consumer_group_describe),
            "DeleteGroups": call(groups.delete_groups),
        },
    )


def client_of(caller: Caller) -> ClientIdentity:
    """Return the caller with its host in Kafka's form (/1.2.3.4)."""
    return ClientIdentity(caller.client_id, "/" + caller.host)
