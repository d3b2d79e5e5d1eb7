"""The gRPC services of a controller: only translation; what is decided is decided in the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from tidelog.config.endpoints import format_address
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.transport import abort_with
from tidelog.v1 import admin_service_pb2, common_pb2, controller_service_pb2
from tidelog.v1.admin_service_pb2_grpc import AdminServiceServicer
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceServicer
from tidelog_quorum.metadata import MetadataImage
from tidelog_quorum.metadata.description import INTERNAL_TOPICS, cluster_brokers, topic_metadata, unknown_topic
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController

R = TypeVar("R")
Voters: TypeAlias = Mapping[int, tuple[str, int]]
_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Responder:
    """Turns errors into statuses; NOT_CONTROLLER names the leader (``tidelog-leader-id``, ``-endpoint``)."""

    def __init__(self, quorum: QuorumController, voters: Voters) -> None:
        self._quorum = quorum
        self._voters = voters

    async def answer(self, context: _Context, response: Awaitable[R], timeout_ms: int = 0) -> R:
        """Await a response, for ``timeout_ms`` at most when that is positive, and return it or end the call."""
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms > 0 else None):
                return await response
        except TimeoutError:
            text = f"the change was not committed within {timeout_ms} ms; it may be later"
            await abort_with(context, error_for(ErrorCode.REQUEST_TIMED_OUT, text))
        except TidelogError as error:
            details = self._leader_details() if error.code is ErrorCode.NOT_CONTROLLER else []
            await abort_with(context, error, details)

    def _leader_details(self) -> list[tuple[str, str]]:
        leader_id = self._quorum.leader.leader_id
        if leader_id is None or leader_id not in self._voters:
            return []
        address = format_address(*self._voters[leader_id])
        return [("tidelog-leader-id", str(leader_id)), ("tidelog-leader-endpoint", address)]


class ControllerService(ControllerServiceServicer):
    """What storage nodes ask of the controllers."""

    def __init__(self, cluster_id: str, quorum: QuorumController, feed: MetadataFeed, voters: Voters) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._feed = feed
        self._voters = voters
        self._responder = Responder(quorum, voters)

    async def RegisterBroker(  # noqa: N802, D102
        self, request: controller_service_pb2.RegisterBrokerRequest, context: _Context
    ) -> controller_service_pb2.RegisterBrokerResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_register_broker(request, now_ms))
        return await self._responder.answer(context, response)

    async def BrokerHeartbeat(  # noqa: N802, D102
        self, request: controller_service_pb2.BrokerHeartbeatRequest, context: _Context
    ) -> controller_service_pb2.BrokerHeartbeatResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_broker_heartbeat(request, now_ms))
        return await self._responder.answer(context, response)

    async def AlterPartition(  # noqa: N802, D102
        self, request: controller_service_pb2.AlterPartitionRequest, context: _Context
    ) -> controller_service_pb2.AlterPartitionResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_alter_partition(request, now_ms))
        return await self._responder.answer(context, response)

    async def AssignReplicasToDirs(  # noqa: N802, D102
        self, request: controller_service_pb2.AssignReplicasToDirsRequest, context: _Context
    ) -> controller_service_pb2.AssignReplicasToDirsResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_assign_replicas_to_dirs(request, now_ms))
        return await self._responder.answer(context, response)

    async def FollowMetadata(  # noqa: N802, D102
        self, request: controller_service_pb2.FollowMetadataRequest, context: _Context
    ) -> AsyncIterator[controller_service_pb2.FollowMetadataResponse]:
        if request.cluster_id != self._cluster_id:
            text = f"observer {request.observer_id} is of cluster {request.cluster_id!r}, this is {self._cluster_id!r}"
            await abort_with(context, error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text))
        async for response in self._feed.follow(request.from_offset):
            yield response

    async def DescribeQuorum(  # noqa: N802, D102
        self, request: controller_service_pb2.DescribeQuorumRequest, context: _Context
    ) -> controller_service_pb2.DescribeQuorumResponse:
        return await self._responder.answer(context, self._quorum.read(self._describe_quorum))

    def _describe_quorum(self, image: MetadataImage) -> controller_service_pb2.DescribeQuorumResponse:
        leader = self._quorum.leader
        ends = self._quorum.log_end_offsets()
        return controller_service_pb2.DescribeQuorumResponse(
            leader_id=_id_or_none(leader.leader_id),
            leader_epoch=leader.epoch,
            high_watermark=image.offset,
            voters=[
                controller_service_pb2.QuorumReplica(
                    replica_id=i, log_end_offset=ends.get(i, -1), endpoint=common_pb2.Endpoint(host=host, port=port)
                )
                for i, (host, port) in sorted(self._voters.items())
            ],
        )


class AdminService(AdminServiceServicer):
    """What administrators ask. Any controller describes the cluster; the rest is the leader's."""

    def __init__(self, cluster_id: str, quorum: QuorumController, voters: Voters) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._voters = voters
        self._responder = Responder(quorum, voters)

    async def CreateTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.CreateTopicsRequest, context: _Context
    ) -> admin_service_pb2.CreateTopicsResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_create_topics(request, now_ms))
        return await self._responder.answer(context, response, request.timeout_ms)

    async def DeleteTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.DeleteTopicsRequest, context: _Context
    ) -> admin_service_pb2.DeleteTopicsResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_delete_topics(request, now_ms))
        return await self._responder.answer(context, response, request.timeout_ms)

    async def ListTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.ListTopicsRequest, context: _Context
    ) -> admin_service_pb2.ListTopicsResponse:
        response = self._quorum.read(lambda image: _list_topics(image, request))
        return await self._responder.answer(context, response)

    async def DescribeTopics(  # noqa: N802, D102
        self, request: admin_service_pb2.DescribeTopicsRequest, context: _Context
    ) -> admin_service_pb2.DescribeTopicsResponse:
        response = self._quorum.read(lambda image: _describe_topics(image, request))
        return await self._responder.answer(context, response)

    async def DescribeCluster(  # noqa: N802, D102
        self, request: admin_service_pb2.DescribeClusterRequest, context: _Context
    ) -> admin_service_pb2.DescribeClusterResponse:
        return admin_service_pb2.DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=_id_or_none(self._quorum.leader.leader_id),
            brokers=cluster_brokers(self._quorum.image),
            voters=[
                admin_service_pb2.QuorumVoter(voter_id=i, endpoint=common_pb2.Endpoint(host=host, port=port))
                for i, (host, port) in sorted(self._voters.items())
            ],
        )


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
    return admin_service_pb2.DescribeTopicsResponse(topics=[_describe_topic(image, n) for n in request.topic_names])


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
