"""The administrators' gRPC service of a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tidelog.v1 import admin_service_pb2
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.cluster import DescribeClusterRequest, DescribeClusterResponse, QuorumVoter
from tidelog_foundation.requests.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tidelog_foundation.requests.features import DescribeFeaturesRequest, DescribeFeaturesResponse
from tidelog_foundation.requests.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from tidelog_foundation.requests.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
)
from tidelog_foundation.transport.services import Call, Service
from tidelog_quorum.controller import Controller
from tidelog_quorum.controller.elect_leaders import election_response, election_slices
from tidelog_quorum.controller.features import describe_features
from tidelog_quorum.controller.reassignment import list_partition_reassignments
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import cluster_brokers, describe_topic, list_topics
from tidelog_quorum.server.calls import change, leader_details, limited, view
from tidelog_quorum.server.quorum_controller import QuorumController

_MANY_PARTITIONS = 100
"""Finding brokers for more partitions takes more than a few milliseconds."""


class _Topic(Protocol):
    @property
    def partitions(self) -> tuple[object, ...]:
        """The partitions that a request names."""


def admin_service(cluster_id: str, quorum: QuorumController) -> Service:
    """Return the service. Any controller describes the cluster; only the leader does the rest."""
    calls = AdminCalls(cluster_id, quorum)
    return Service(
        admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"],
        {
            "CreateTopics": change(quorum, Controller.handle_create_topics, _creates_many),
            "DeleteTopics": change(quorum, Controller.handle_delete_topics, _deletes_many),
            "ListTopics": view(quorum, list_topics),
            "DescribeTopics": limited(calls.describe_topics, DescribeTopicsRequest, DescribeTopicsResponse),
            "DescribeCluster": limited(calls.describe_cluster, DescribeClusterRequest, DescribeClusterResponse),
            "CreatePartitions": change(quorum, Controller.handle_create_partitions, _adds_many),
            "IncrementalAlterConfigs": change(quorum, Controller.handle_incremental_alter_configs, _affects_many),
            "DescribeConfigs": Call(_describe_configs, DescribeConfigsRequest, DescribeConfigsResponse),
            "ElectLeaders": limited(calls.elect_leaders, ElectLeadersRequest, ElectLeadersResponse),
            "AlterPartitionReassignments": change(
                quorum, Controller.handle_alter_partition_reassignments, _reassigns_many
            ),
            "ListPartitionReassignments": view(quorum, list_partition_reassignments),
            "DescribeFeatures": limited(calls.describe_features, DescribeFeaturesRequest, DescribeFeaturesResponse),
            "UpdateFeatures": change(quorum, Controller.handle_update_features, lambda _: True),
            "UnregisterBroker": change(quorum, Controller.handle_unregister_broker),
        },
        leader_details(quorum),
    )


class AdminCalls:
    """The calls that are more than one change or view."""

    def __init__(self, cluster_id: str, quorum: QuorumController) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum

    async def describe_topics(self, request: DescribeTopicsRequest) -> DescribeTopicsResponse:
        """Describe topics, many in a thread."""
        image = await self._quorum.read(lambda image: image)
        if len(request.topic_names) > _MANY_PARTITIONS:
            return await asyncio.to_thread(_describe_topics, image, request)
        return _describe_topics(image, request)

    async def describe_cluster(self, _: DescribeClusterRequest) -> DescribeClusterResponse:
        """Describe the brokers and voters that this controller knows."""
        leader_id = self._quorum.leader.leader_id
        voters = tuple(QuorumVoter(v.voter_id, Endpoint(v.host, v.port)) for v in self._quorum.voters)
        return DescribeClusterResponse(
            self._cluster_id, -1 if leader_id is None else leader_id, cluster_brokers(self._quorum.image), voters
        )

    async def describe_features(self, _: DescribeFeaturesRequest) -> DescribeFeaturesResponse:
        """Describe the features."""
        return await self._quorum.read(describe_features)

    async def elect_leaders(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        """Elect leaders slice by slice, with other requests in between."""
        image = await self._quorum.read(lambda image: image)
        results: dict[str, list[ElectLeadersPartitionResult]] = {}
        for part in election_slices(image, request):
            for topic in (await self._elect_slice(part)).topics:
                results.setdefault(topic.name, []).extend(topic.partitions)
        return election_response(results)

    async def _elect_slice(self, part: ElectLeadersRequest) -> ElectLeadersResponse:
        is_long = _named_partitions(part.topics) > _MANY_PARTITIONS
        return await self._quorum.submit(lambda c, now_ms: c.handle_elect_leaders(part, now_ms), is_long=is_long)


def _creates_many(request: CreateTopicsRequest) -> bool:
    return sum(max(len(t.assignments), t.num_partitions, 1) for t in request.topics) > _MANY_PARTITIONS


def _deletes_many(request: DeleteTopicsRequest) -> bool:
    return len(request.topic_names) + len(request.topic_ids) > _MANY_PARTITIONS


def _adds_many(request: CreatePartitionsRequest) -> bool:
    return sum(max(1, topic.count) for topic in request.topics) > _MANY_PARTITIONS


def _affects_many(request: IncrementalAlterConfigsRequest) -> bool:
    # The settings of all brokers affect all partitions.
    return len(request.resources) > _MANY_PARTITIONS or any(not r.resource.name for r in request.resources)


def _reassigns_many(request: AlterPartitionReassignmentsRequest) -> bool:
    return _named_partitions(request.topics) > _MANY_PARTITIONS


def _named_partitions(topics: Iterable[_Topic]) -> int:
    """Return the number of partitions; a topic without any counts as one."""
    return sum(max(1, len(topic.partitions)) for topic in topics)


async def _describe_configs(request: DescribeConfigsRequest, _: object) -> DescribeConfigsResponse:
    text = "a controller does not know what the nodes' own files set: ask a node"
    raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)


def _describe_topics(image: MetadataImage, request: DescribeTopicsRequest) -> DescribeTopicsResponse:
    return DescribeTopicsResponse(tuple(describe_topic(image, name) for name in dict.fromkeys(request.topic_names)))
