"""The gRPC service of administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidelog.v1 import admin_service_pb2 as pb
from tidelog_foundation.requests.cluster import UnregisterBrokerRequest
from tidelog_foundation.requests.features import DescribeFeaturesRequest, UpdateFeaturesRequest
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tidelog_foundation.requests.request import Request, response_type
from tidelog_foundation.transport.services import Call, Service, types_of
from tidelog_node import handlers
from tidelog_node.handlers import NodeContext

Q = TypeVar("Q")
R = TypeVar("R")


def admin_service(context: NodeContext) -> Service:
    """Return the service of administrators."""

    def call(handler: Callable[[NodeContext, Q], Awaitable[R]]) -> Call[Q, R]:
        return Call(lambda request, _: handler(context, request), *types_of(handler))

    def forwarded(request: type[Request[R]]) -> Call[Request[R], R]:
        return Call(lambda asked, _: handlers.forward(context, asked), request, response_type(request))

    return Service(
        pb.DESCRIPTOR.services_by_name["AdminService"],
        {
            "CreateTopics": call(handlers.create_topics),
            "DeleteTopics": call(handlers.delete_topics),
            "ListTopics": call(handlers.list_topics),
            "DescribeTopics": call(handlers.describe_topics),
            "CreatePartitions": call(handlers.create_partitions),
            "IncrementalAlterConfigs": call(handlers.incremental_alter_configs),
            "DescribeConfigs": call(handlers.describe_configs),
            "ElectLeaders": forwarded(ElectLeadersRequest),
            "AlterPartitionReassignments": forwarded(AlterPartitionReassignmentsRequest),
            "ListPartitionReassignments": forwarded(ListPartitionReassignmentsRequest),
            "DescribeFeatures": forwarded(DescribeFeaturesRequest),
            "UpdateFeatures": forwarded(UpdateFeaturesRequest),
            "UnregisterBroker": forwarded(UnregisterBrokerRequest),
            "DescribeCluster": call(handlers.describe_cluster),
        },
    )
