"""The storage nodes' gRPC service of a controller: translation only; the controller decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from tidelog.v1 import controller_service_pb2
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceServicer
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.transport import abort_with
from tidelog_quorum.server.broker_connections import BrokerConnections, address_of_peer
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController

R = TypeVar("R")
RpcContext: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class Responder:
    """Turns errors into gRPC statuses; NOT_CONTROLLER names the leader (``tidelog-leader-id``, ``-endpoint``)."""

    def __init__(self, quorum: QuorumController) -> None:
        self._quorum = quorum

    async def answer(self, context: RpcContext, response: Awaitable[R], timeout_ms: int = 0) -> R:
        """Await a response, for at most ``timeout_ms`` if positive, and return it or abort the call."""
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
        leader = None if leader_id is None else self._quorum.voters.get(leader_id)
        if leader is None:
            return []
        address = format_address(leader.host, leader.port)
        return [("tidelog-leader-id", str(leader.voter_id)), ("tidelog-leader-endpoint", address)]


class ControllerService(ControllerServiceServicer):
    """The service for storage nodes."""

    def __init__(
        self, cluster_id: str, quorum: QuorumController, feed: MetadataFeed, connections: BrokerConnections
    ) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._connections = connections
        self._feed = feed
        self._responder = Responder(quorum)

    async def RegisterBroker(  # noqa: N802, D102
        self, request: controller_service_pb2.RegisterBrokerRequest, context: RpcContext
    ) -> controller_service_pb2.RegisterBrokerResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_register_broker(request, now_ms))
        return await self._responder.answer(context, response)

    async def BrokerHeartbeat(  # noqa: N802, D102
        self, request: controller_service_pb2.BrokerHeartbeatRequest, context: RpcContext
    ) -> controller_service_pb2.BrokerHeartbeatResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_broker_heartbeat(request, now_ms))
        return await self._responder.answer(context, response)

    async def HoldConnection(  # noqa: N802, D102
        self, request: controller_service_pb2.HoldConnectionRequest, context: RpcContext
    ) -> controller_service_pb2.HoldConnectionResponse:
        broker_id, broker_epoch = BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch)
        return await self._responder.answer(
            context, self._connections.hold(broker_id, broker_epoch, address_of_peer(context.peer()))
        )

    async def AlterPartition(  # noqa: N802, D102
        self, request: controller_service_pb2.AlterPartitionRequest, context: RpcContext
    ) -> controller_service_pb2.AlterPartitionResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_alter_partition(request, now_ms))
        return await self._responder.answer(context, response)

    async def AssignReplicasToDirs(  # noqa: N802, D102
        self, request: controller_service_pb2.AssignReplicasToDirsRequest, context: RpcContext
    ) -> controller_service_pb2.AssignReplicasToDirsResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_assign_replicas_to_dirs(request, now_ms))
        return await self._responder.answer(context, response)

    async def FollowMetadata(  # noqa: N802, D102
        self, request: controller_service_pb2.FollowMetadataRequest, context: RpcContext
    ) -> AsyncIterator[controller_service_pb2.FollowMetadataResponse]:
        if request.cluster_id != self._cluster_id:
            text = f"observer {request.observer_id} is of cluster {request.cluster_id!r}, this is {self._cluster_id!r}"
            await abort_with(context, error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text))
        async with contextlib.aclosing(self._feed.follow(request.from_offset)) as responses:
            async for response in responses:
                yield response

    async def AllocateProducerIds(  # noqa: N802, D102
        self, request: controller_service_pb2.AllocateProducerIdsRequest, context: RpcContext
    ) -> controller_service_pb2.AllocateProducerIdsResponse:
        response = self._quorum.submit(lambda c, now_ms: c.handle_allocate_producer_ids(request, now_ms))
        return await self._responder.answer(context, response)
