"""The gRPC services over a real connection: errors as statuses, the leader's address, answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from topic_ids import SequentialTopicIds

from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.addresses import ControllerEndpoint
from tidelog_foundation.transport import error_from_rpc, open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.status import trailing_value
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.metadata.codec import decode_batch
from tidelog_quorum.metadata.records import RegisterBrokerRecord
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.server.broker_connections import BrokerConnections
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.services import admin_service, controller_service

VOTERS = VoterSet([Voter.at(1, "10.0.0.1", 9093), Voter.at(2, "10.0.0.2", 9094)])


class Client:
    def __init__(self, raft: Any, channel: grpc.aio.Channel, features: list[common_pb2.FeatureRange]) -> None:
        self.raft = raft
        self.features = features
        self.controller = ControllerServiceStub(channel)
        self.admin = AdminServiceStub(channel)

    async def register(self, broker_id: int = 7) -> int:
        """Register and unfence; return the broker epoch."""
        request = pb.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id="c1",
            incarnation_id=bytes(16),
            endpoint=common_pb2.Endpoint(host="h", port=broker_id),
            rack="r",
            features=self.features,
        )
        epoch = (await self.controller.RegisterBroker(request)).broker_epoch
        request_ = pb.BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=epoch)
        assert not (await self.controller.BrokerHeartbeat(request_)).is_fenced
        return epoch

    async def create(self, *names: str, timeout_ms: int = 0) -> admin.CreateTopicsResponse:
        topics = [admin.CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in names]
        return await self.admin.CreateTopics(admin.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms))


def named(voter_id: int, **ports: int) -> Voter:
    """Return a voter with these listeners."""
    host = f"10.0.0.{voter_id}"
    return Voter(voter_id, Endpoints(ControllerEndpoint(host, port, name) for name, port in ports.items()))


@pytest.fixture
def serve(
    new_raft: Callable[[], Any], features: list[common_pb2.FeatureRange]
) -> Callable[[Callable[[Client], Awaitable[None]]], None]:
    async def run(test: Callable[[Client], Awaitable[None]], listener: str = ANY_LISTENER) -> None:
        raft, feed = new_raft(), MetadataFeed()
        quorum = QuorumController(
            Controller(ControllerConfig("c1"), SequentialTopicIds()), raft, feed, 9_000, lambda: 0
        )
        server = grpc.aio.server(options=server_options())
        port = bind_port(server, "127.0.0.1", 0)
        connections = BrokerConnections(quorum, lambda: 0)
        services = controller_service("c1", quorum, feed, connections, listener), admin_service("c1", quorum, listener)
        for service in services:
            service.add_to(server, Intake(Charge(ByteBudget(1 << 20))))
        await raft.start(quorum)
        quorum.on_voters_change(VOTERS)
        await server.start()
        try:
            async with open_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(10):
                await test(Client(raft, channel, features))
        finally:
            await server.stop(0)

    return lambda test, *listener: asyncio.run(run(test, *listener))


async def failure(call: Awaitable[object]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def test_service_names_the_leader_when_it_does_not_lead(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(2)
        for call in (
            client.register(),
            client.create("a"),
            client.admin.ListTopics(admin.ListTopicsRequest()),
        ):
            error = await failure(call)
            assert error_from_rpc(error).code is ErrorCode.NOT_CONTROLLER
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert trailing_value(error, "tidelog-leader-id") == "2"
            assert trailing_value(error, "tidelog-leader-endpoint") == "10.0.0.2:9094"

    serve(test)


def test_service_names_a_leader_that_was_added_later(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(3)
        assert trailing_value(await failure(client.register()), "tidelog-leader-endpoint") is None
        client.raft.listener.on_voters_change(VOTERS.with_voter(Voter.at(3, "10.0.0.3", 9095)).without(1))
        assert trailing_value(await failure(client.register()), "tidelog-leader-endpoint") == "10.0.0.3:9095"
        view = await client.admin.DescribeCluster(admin.DescribeClusterRequest())
        assert [v.voter_id for v in view.voters] == [2, 3]

    serve(test)


def test_service_names_nobody_while_there_is_no_leader(serve: Any) -> None:
    async def test(client: Client) -> None:
        error = await failure(client.register())
        assert error_from_rpc(error).code is ErrorCode.NOT_CONTROLLER
        assert trailing_value(error, "tidelog-leader-id") is None

    serve(test)


def test_service_gives_errors_their_status_and_code(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(1)
        request = pb.RegisterBrokerRequest(broker_id=1, cluster_id="c2")
        error = await failure(client.controller.RegisterBroker(request))
        assert error_from_rpc(error).code is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert "'c2'" in error.details()

    serve(test)


def test_service_creates_describes_lists_and_deletes_topics(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(1)
        await client.register()
        created = await client.create("a")
        assert not created.topics[0].HasField("error")
        described = await client.admin.DescribeTopics(admin.DescribeTopicsRequest(topic_names=["a", "b"]))
        a, b = (t.topic for t in described.topics)
        assert [(p.index, p.leader_id, list(p.isr_nodes)) for p in a.partitions] == [(0, 7, [7]), (1, 7, [7])]
        assert b.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        listed = await client.admin.ListTopics(admin.ListTopicsRequest())
        assert [(t.name, t.topic_id) for t in listed.topics] == [("a", (1).to_bytes(16, "big"))]
        deleted = await client.admin.DeleteTopics(admin.DeleteTopicsRequest(topic_names=["a"]))
        assert not deleted.topics[0].HasField("error")
        assert not (await client.admin.ListTopics(admin.ListTopicsRequest())).topics

    serve(test)


def test_service_describes_a_partition_without_leader(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(1)
        epoch = await client.register()
        await client.create("a")
        request = pb.BrokerHeartbeatRequest(
            broker_id=7, broker_epoch=epoch, current_metadata_offset=epoch, want_fence=True
        )
        assert (await client.controller.BrokerHeartbeat(request)).is_fenced
        described = await client.admin.DescribeTopics(admin.DescribeTopicsRequest(topic_names=["a"]))
        partition = described.topics[0].topic.partitions[0]
        assert (partition.leader_id, partition.error.code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE.code)
        assert list(partition.offline_replicas) == [7]

    serve(test)


@pytest.mark.parametrize(("listener", "port"), [("OPEN", 1), ("TLS", 2)])
def test_service_names_the_addresses_of_the_listener_that_is_called(serve: Any, listener: str, port: int) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(2)
        voters = VoterSet([named(1, OPEN=1, TLS=2), named(2, OPEN=1, TLS=2), named(3, OPEN=1)])
        client.raft.listener.on_voters_change(voters)
        error = await failure(client.register())
        assert trailing_value(error, "tidelog-leader-endpoint") == f"10.0.0.2:{port}"
        view = await client.admin.DescribeCluster(admin.DescribeClusterRequest())
        reachable = [1, 2, 3] if listener == "OPEN" else [1, 2]
        expected = [(i, f"10.0.0.{i}", port) for i in reachable]
        assert [(v.voter_id, v.endpoint.host, v.endpoint.port) for v in view.voters] == expected
        if listener == "TLS":
            client.raft.elect(3)
            assert trailing_value(await failure(client.register()), "tidelog-leader-endpoint") is None

    serve(test, listener)


def test_service_describes_the_cluster_on_any_controller(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(1)
        await client.register()
        client.raft.elect(2)
        view = await client.admin.DescribeCluster(admin.DescribeClusterRequest())
        assert (view.cluster_id, view.controller_id) == ("c1", 2)
        assert [(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in view.brokers] == [(7, "h", 7, "r", False)]
        assert [(v.voter_id, v.endpoint.host, v.endpoint.port) for v in view.voters] == [
            (1, "10.0.0.1", 9093),
            (2, "10.0.0.2", 9094),
        ]

    serve(test)


def test_service_gives_up_after_the_requests_timeout(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(1)
        await client.register()
        client.raft.auto_commit = False
        error = await failure(client.create("a", timeout_ms=20))
        assert error_from_rpc(error).code is ErrorCode.REQUEST_TIMED_OUT

    serve(test)


def test_service_streams_the_metadata_from_any_controller(serve: Any) -> None:
    async def test(client: Client) -> None:
        client.raft.elect(1)
        await client.register()
        client.raft.elect(2)
        stream = client.controller.FollowMetadata(pb.FollowMetadataRequest(cluster_id="c1", observer_id=7))
        first = await stream.read()
        assert first.snapshot_begin
        assert first.snapshot_end
        assert first.leader_id == 2
        assert [v.voter_id for v in first.voters.voters] == [1, 2]
        records = decode_batch(first.entries[0].batch)
        assert [r.broker_id for r in records if isinstance(r, RegisterBrokerRecord)] == [7]
        stream.cancel()

    serve(test)


def test_service_refuses_an_observer_of_another_cluster(serve: Any) -> None:
    async def test(client: Client) -> None:
        stream = client.controller.FollowMetadata(pb.FollowMetadataRequest(cluster_id="c2", observer_id=7))
        error = await failure(stream.read())
        assert error_from_rpc(error).code is ErrorCode.INCONSISTENT_CLUSTER_ID

    serve(test)
