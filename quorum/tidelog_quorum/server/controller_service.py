"""The storage nodes' gRPC service of a controller."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from tidelog.v1 import controller_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.brokers import HoldConnectionRequest, HoldConnectionResponse
from tidelog_foundation.transport.services import Call, Caller, ResponseStream, Service
from tidelog_quorum.controller import Controller
from tidelog_quorum.server.broker_connections import BrokerConnections, address_of_peer
from tidelog_quorum.server.calls import change, leader_details
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController


def controller_service(
    cluster_id: str, quorum: QuorumController, feed: MetadataFeed, connections: BrokerConnections
) -> Service:
    """Return the service. Any controller serves FollowMetadata; only the leader does the rest."""

    async def hold_connection(request: HoldConnectionRequest, caller: Caller) -> HoldConnectionResponse:
        address = address_of_peer(caller.connection)
        return await connections.hold(request.broker_id, request.broker_epoch, address)

    async def follow_metadata(
        request: pb.FollowMetadataRequest, _: Caller
    ) -> AsyncGenerator[pb.FollowMetadataResponse, None]:
        if request.cluster_id != cluster_id:
            text = f"observer {request.observer_id} is of cluster {request.cluster_id!r}, this is {cluster_id!r}"
            raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
        async with contextlib.aclosing(feed.follow(request.from_offset)) as responses:
            async for response in responses:
                yield response

    return Service(
        pb.DESCRIPTOR.services_by_name["ControllerService"],
        {
            "RegisterBroker": change(quorum, Controller.handle_register_broker),
            "BrokerHeartbeat": change(quorum, Controller.handle_broker_heartbeat),
            "HoldConnection": Call(hold_connection, HoldConnectionRequest, HoldConnectionResponse),
            "AlterPartition": change(quorum, Controller.handle_alter_partition),
            "AssignReplicasToDirs": change(quorum, Controller.handle_assign_replicas_to_dirs),
            "FollowMetadata": ResponseStream(follow_metadata, pb.FollowMetadataRequest, pb.FollowMetadataResponse),
            "AllocateProducerIds": change(quorum, Controller.handle_allocate_producer_ids),
        },
        leader_details(quorum),
    )
