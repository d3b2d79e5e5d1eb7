"""The administrators' gRPC service of a controller: translation only; the controller decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from tidelog.v1 import admin_service_pb2, common_pb2
from tidelog.v1.admin_service_pb2_grpc import AdminServiceServicer
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.transport import abort_with
from tidelog_quorum.controller.elect_leaders import election_slices
from tidelog_quorum.controller.features import describe_features
from tidelog_quorum.controller.reassignment import list_partition_reassignments
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import INTERNAL_TOPICS, cluster_brokers, topic_metadata, unknown_topic
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.service import Responder, RpcContext

_MANY_PARTITIONS = 100
"""Finding brokers for more partitions takes more than a few milliseconds."""

_Topic: TypeAlias = admin_service_pb2.TopicPartitions | admin_service_pb2.ReassignableTopic


class AdminService(AdminServiceServicer):
    """The service for administrators. Any controller describes the cluster; only the leader does the rest."""

    def __init__(self, cluster_id: str, quorum: QuorumController) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._responder = Responder(quorum)

    async def CreateTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.CreateTopicsRequest, context: RpcContext
    ) -> admin_service_pb2.CreateTopicsResponse:
        is_long = sum(_partitions_of(topic) for topic in request.topics) > _MANY_PARTITIONS
        response = self._quorum.submit(lambda c, now_ms: c.handle_create_topics(request, now_ms), is_long=is_long)
        return await self._responder.answer(context, response, request.timeout_ms)

    async def DeleteTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.DeleteTopicsRequest, context: RpcContext
    ) -> admin_service_pb2.DeleteTopicsResponse:
        is_long = len(request.topic_names) + len(request.topic_ids) > _MANY_PARTITIONS
        response = self._quorum.submit(lambda c, now_ms: c.handle_delete_topics(request, now_ms), is_long=is_long)
        return await self._responder.answer(context, response, request.timeout_ms)

    async def ListTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.ListTopicsRequest, context: RpcContext
    ) -> admin_service_pb2.ListTopicsResponse:
        response = self._quorum.read(lambda image: _list_topics(image, request))
        return await self._responder.answer(context, response)

    async def DescribeTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.DescribeTopicsRequest, context: RpcContext
    ) -> admin_service_pb2.DescribeTopicsResponse:
        return await self._responder.answer(context, self._describe_topics(request))

    async def CreatePartitions(  # noqa: N802, D102
        self, request: admin_service_pb2.CreatePartitionsRequest, context: RpcContext
    ) -> admin_service_pb2.CreatePartitionsResponse:
        is_long = sum(max(1, topic.count) for topic in request.topics) > _MANY_PARTITIONS
        response = self._quorum.submit(lambda c, now_ms: c.handle_create_partitions(request, now_ms), is_long=is_long)
        return await self._responder.answer(context, response, request.timeout_ms)

    async def IncrementalAlterConfigs(  # noqa: N802, D102
        self, request: admin_service_pb2.IncrementalAlterConfigsRequest, context: RpcContext
    ) -> admin_service_pb2.IncrementalAlterConfigsResponse:
        # The settings of all brokers affect all partitions.
        is_long = len(request.resources) > _MANY_PARTITIONS or any(not r.resource.name for r in request.resources)
        response = self._quorum.submit(
            lambda c, now_ms: c.handle_incremental_alter_configs(request, now_ms), is_long=is_long
        )
        return await self._responder.answer(context, response, request.timeout_ms)

    async def ElectLeaders(  # noqa: N802, D102
        self, request: admin_service_pb2.ElectLeadersRequest, context: RpcContext
    ) -> admin_service_pb2.ElectLeadersResponse:
        return await self._responder.answer(context, self._elect_leaders(request), request.timeout_ms)

    async def AlterPartitionReassignments(  # noqa: N802, D102
        self, request: admin_service_pb2.AlterPartitionReassignmentsRequest, context: RpcContext
    ) -> admin_service_pb2.AlterPartitionReassignmentsResponse:
        is_long = _named_partitions(request.topics) > _MANY_PARTITIONS
        response = self._quorum.submit(
            lambda c, now_ms: c.handle_alter_partition_reassignments(request, now_ms), is_long=is_long
        )
        return await self._responder.answer(context, response, request.timeout_ms)

    async def UpdateFeatures(  # noqa: N802, D102
        self, request: admin_service_pb2.UpdateFeaturesRequest, context: RpcContext
    ) -> admin_service_pb2.UpdateFeaturesResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_update_features(request, now_ms), is_long=True)
        return await self._responder.answer(context, response, request.timeout_ms)

    async def UnregisterBroker(  # noqa: N802, D102
        self, request: admin_service_pb2.UnregisterBrokerRequest, context: RpcContext
    ) -> admin_service_pb2.UnregisterBrokerResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_unregister_broker(request, now_ms))
        return await self._responder.answer(context, response)

    async def ListPartitionReassignments(  # noqa: N802, D102
        self, request: admin_service_pb2.ListPartitionReassignmentsRequest, context: RpcContext
    ) -> admin_service_pb2.ListPartitionReassignmentsResponse:
        response = self._quorum.read(lambda image: list_partition_reassignments(image, request))
        return await self._responder.answer(context, response)

    async def DescribeFeatures(  # noqa: N802, D102
        self, request: admin_service_pb2.DescribeFeaturesRequest, context: RpcContext
    ) -> admin_service_pb2.DescribeFeaturesResponse:
        return await self._responder.answer(context, self._quorum.read(describe_features))

    async def DescribeConfigs(  # noqa: N802, D102
        self, request: admin_service_pb2.DescribeConfigsRequest, context: RpcContext
    ) -> admin_service_pb2.DescribeConfigsResponse:
        text = "a controller does not know what the nodes' own files set: ask a node"
        await abort_with(context, error_for(ErrorCode.UNSUPPORTED_VERSION, text))

    async def DescribeCluster(  # noqa: N802, D102
        self, request: admin_service_pb2.DescribeClusterRequest, context: RpcContext
    ) -> admin_service_pb2.DescribeClusterResponse:
        return admin_service_pb2.DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=_id_or_none(self._quorum.leader.leader_id),
            brokers=cluster_brokers(self._quorum.image),
            voters=[
                admin_service_pb2.QuorumVoter(
                    voter_id=v.voter_id, endpoint=common_pb2.Endpoint(host=v.host, port=v.port)
                )
                for v in self._quorum.voters
            ],
        )

    async def _describe_topics(
        self, request: admin_service_pb2.DescribeTopicsRequest
    ) -> admin_service_pb2.DescribeTopicsResponse:
        image = await self._quorum.read(lambda image: image)
        if len(request.topic_names) > _MANY_PARTITIONS:
            return await asyncio.to_thread(_describe_topics, image, request)
        return _describe_topics(image, request)

    async def _elect_leaders(
        self, request: admin_service_pb2.ElectLeadersRequest
    ) -> admin_service_pb2.ElectLeadersResponse:
        image = await self._quorum.read(lambda image: image)
        results: dict[str, admin_service_pb2.ElectLeadersTopicResult] = {}
        for part in election_slices(image, request):
            for topic in (await self._elect_slice(part)).topics:
                result = results.setdefault(topic.name, admin_service_pb2.ElectLeadersTopicResult(name=topic.name))
                result.partitions.extend(topic.partitions)
        return admin_service_pb2.ElectLeadersResponse(topics=results.values())

    async def _elect_slice(self, part: admin_service_pb2.ElectLeadersRequest) -> admin_service_pb2.ElectLeadersResponse:
        is_long = _named_partitions(part.topics) > _MANY_PARTITIONS
        return await self._quorum.submit(lambda c, now_ms: c.handle_elect_leaders(part, now_ms), is_long=is_long)


def _partitions_of(topic: admin_service_pb2.CreatableTopic) -> int:
    return max(len(topic.assignments), topic.num_partitions, 1)


def _named_partitions(topics: Iterable[_Topic]) -> int:
    """Return the number of partitions; a topic without any counts as one."""
    return sum(max(1, len(topic.partitions)) for topic in topics)


def _list_topics(
    image: MetadataImage, request: admin_service_pb2.ListTopicsRequest
) -> admin_service_pb2.ListTopicsResponse:
    shown = [t for _, t in sorted(image.topics.items()) if request.include_internal or t.name not in INTERNAL_TOPICS]
    return admin_service_pb2.ListTopicsResponse(
        topics=[
            admin_service_pb2.TopicListing(name=t.name, topic_id=t.topic_id, is_internal=t.name in INTERNAL_TOPICS)
            for t in shown
        ]
    )


def _describe_topics(
    image: MetadataImage, request: admin_service_pb2.DescribeTopicsRequest
) -> admin_service_pb2.DescribeTopicsResponse:
    names = dict.fromkeys(request.topic_names)
    return admin_service_pb2.DescribeTopicsResponse(topics=[_describe_topic(image, n) for n in names])


def _describe_topic(image: MetadataImage, name: str) -> admin_service_pb2.TopicDescription:
    topic = image.topics.get(name)
    if topic is None:
        return admin_service_pb2.TopicDescription(topic=unknown_topic(name))
    configs = sorted(image.config_of_topic(name).items())
    return admin_service_pb2.TopicDescription(
        topic=topic_metadata(image, topic), configs=[common_pb2.ConfigEntry(name=n, value=v) for n, v in configs]
    )


def _id_or_none(leader_id: int | None) -> int:
    return -1 if leader_id is None else leader_id
