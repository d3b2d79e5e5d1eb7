"""The gRPC services of administrators, groups and transactions, each as a table of methods and handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from tidelog.v1 import admin_service_pb2, group_service_pb2, transaction_service_pb2
from tidelog_foundation.requests.cluster import UnregisterBrokerRequest
from tidelog_foundation.requests.features import DescribeFeaturesRequest, UpdateFeaturesRequest
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tidelog_foundation.requests.quotas import QuotaClient
from tidelog_foundation.requests.request import Request, response_type
from tidelog_foundation.requests.stop_safety import DescribeStopSafetyRequest
from tidelog_foundation.transport.services import Call, Caller, Service, types_of
from tidelog_node import handlers
from tidelog_node.coordination import GroupCoordinator, TransactionCoordinator
from tidelog_node.handlers import (
    NodeContext,
    delegation_tokens,
    group_members,
    group_offsets,
    groups,
    transactions,
)
from tidelog_node.handlers.delegation_tokens import TokenCaller
from tidelog_node.server.call_quotas import usage_of
from tidelog_node.shards.events import ClientIdentity

Q = TypeVar("Q")
R = TypeVar("R")


def admin_service(context: NodeContext) -> Service:
    """Return the service of administrators."""

    def forwarded(request: type[Request[R]]) -> Call[Request[R], R]:
        return Call(lambda asked, _: handlers.forward(context, asked), request, response_type(request))

    def token_call(handler: Callable[[NodeContext, Q, TokenCaller], Awaitable[R]]) -> Call[Q, R]:
        return Call(
            lambda request, caller: handler(context, request, TokenCaller(caller.principal, caller.has_token)),
            *types_of(handler),
        )

    return Service(
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        {
            "CreateTopics": _mutation(context, handlers.create_topics),
            "DeleteTopics": _mutation(context, handlers.delete_topics),
            "ListTopics": call_of(context, handlers.list_topics),
            "DescribeTopics": call_of(context, handlers.describe_topics),
            "CreatePartitions": _mutation(context, handlers.create_partitions),
            "IncrementalAlterConfigs": call_of(context, handlers.incremental_alter_configs),
            "DescribeConfigs": call_of(context, handlers.describe_configs),
            "ElectLeaders": forwarded(ElectLeadersRequest),
            "AlterPartitionReassignments": forwarded(AlterPartitionReassignmentsRequest),
            "ListPartitionReassignments": forwarded(ListPartitionReassignmentsRequest),
            "DescribeFeatures": forwarded(DescribeFeaturesRequest),
            "UpdateFeatures": forwarded(UpdateFeaturesRequest),
            "UnregisterBroker": forwarded(UnregisterBrokerRequest),
            "DescribeStopSafety": forwarded(DescribeStopSafetyRequest),
            "DescribeProcess": call_of(context, handlers.describe_process),
            "DescribeCluster": call_of(context, handlers.describe_cluster),
            "CreateAcls": call_of(context, handlers.create_acls),
            "DescribeAcls": call_of(context, handlers.describe_acls),
            "DeleteAcls": call_of(context, handlers.delete_acls),
            "AlterUserScramCredentials": call_of(context, handlers.alter_user_scram_credentials),
            "DescribeUserScramCredentials": call_of(context, handlers.describe_user_scram_credentials),
            "AlterClientQuotas": call_of(context, handlers.alter_client_quotas),
            "DescribeClientQuotas": call_of(context, handlers.describe_client_quotas),
            "CreateDelegationToken": token_call(delegation_tokens.create_delegation_token),
            "RenewDelegationToken": token_call(delegation_tokens.renew_delegation_token),
            "ExpireDelegationToken": token_call(delegation_tokens.expire_delegation_token),
            "DescribeDelegationToken": token_call(delegation_tokens.describe_delegation_token),
            "CreateClusterLink": call_of(context, handlers.create_cluster_link),
            "AlterClusterLink": call_of(context, handlers.alter_cluster_link),
            "DeleteClusterLink": call_of(context, handlers.delete_cluster_link),
            "ListClusterLinks": call_of(context, handlers.list_cluster_links),
            "CreateMirrorTopic": call_of(context, handlers.create_mirror_topic),
            "AlterMirrorTopics": call_of(context, handlers.alter_mirror_topics),
            "DescribeMirrorTopics": call_of(context, handlers.describe_mirror_topics),
        },
    )


def group_service(context: NodeContext, coordinator: GroupCoordinator, transactions: TransactionCoordinator) -> Service:
    """Return the service of group members and group administrators. It also finds coordinators of transactions."""

    def call(handler: Callable[[GroupCoordinator, Q, ClientIdentity], Awaitable[R]]) -> Call[Q, R]:
        return Call(lambda request, caller: handler(coordinator, request, client_of(caller)), *types_of(handler))

    return Service(
        group_service_pb2.DESCRIPTOR.services_by_name["GroupService"],
        {
            "FindCoordinator": Call(
                lambda request, _: groups.find_coordinator(coordinator, transactions, request, context.grpc_listener),
                *types_of(groups.find_coordinator),
            ),
            "JoinGroup": call(group_members.join_group),
            "SyncGroup": call(group_members.sync_group),
            "Heartbeat": call(group_members.heartbeat),
            "LeaveGroup": call(group_members.leave_group),
            "ConsumerGroupHeartbeat": call(group_members.consumer_group_heartbeat),
            "OffsetCommit": call(group_offsets.offset_commit),
            "TxnOffsetCommit": Call(
                lambda request, caller: group_offsets.txn_offset_commit(
                    context, coordinator, request, client_of(caller)
                ),
                *types_of(group_offsets.txn_offset_commit),
            ),
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


def transaction_service(context: NodeContext) -> Service:
    """Return the service of transactional producers and of administrators of transactions."""

    return Service(
        transaction_service_pb2.DESCRIPTOR.services_by_name["TransactionService"],
        {
            "AddPartitionsToTxn": call_of(context, transactions.add_partitions_to_txn),
            "AddOffsetsToTxn": call_of(context, transactions.add_offsets_to_txn),
            "EndTxn": call_of(context, transactions.end_txn),
            "DescribeTransactions": call_of(context, transactions.describe_transactions),
            "ListTransactions": call_of(context, transactions.list_transactions),
        },
    )


def _mutation(context: NodeContext, handler: Callable[[NodeContext, Any], Awaitable[Any]]) -> Call[Any, Any]:
    """Return the entry of a method that the quota of mutations governs."""

    async def mutate(request: Any, caller: Caller) -> Any:
        usage = usage_of(caller)
        response = await handler(context, replace(request, quota_client=quota_client_of(context, caller)))
        if usage is not None and response.throttle_time_ms:
            usage.note_mutation_delay(response.throttle_time_ms)
        return response

    return Call(mutate, *types_of(handler))


def quota_client_of(context: NodeContext, caller: Caller) -> QuotaClient | None:
    """Return the caller, whose quota counts mutations; None while nobody has one."""
    if not context.quotas.mutation.is_enabled:
        return None
    return QuotaClient(caller.principal.name, caller.client_id)


def call_of(context: NodeContext, handler: Callable[[NodeContext, Q], Awaitable[R]]) -> Call[Q, R]:
    """Return the entry of a method whose handler takes the node's context."""
    return Call(lambda request, _: handler(context, request), *types_of(handler))
