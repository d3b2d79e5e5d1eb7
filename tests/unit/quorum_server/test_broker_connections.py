"""A broker's held connection breaks: what the leading controller finds at its listeners, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc.aio
import pytest
from topic_ids import SequentialTopicIds

from tidelog.v1 import common_pb2
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import error_from_rpc, open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.channels import bind_port
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_quorum.controller.config import ControllerConfig
from tidelog_quorum.controller.state_machine import Controller
from tidelog_quorum.server.broker_connections import BrokerConnections, address_of_peer
from tidelog_quorum.server.metadata_feed import MetadataFeed
from tidelog_quorum.server.quorum_controller import QuorumController
from tidelog_quorum.server.services import controller_service

BROKER = 7
LONG_ENOUGH_S = 0.6
"""In which a broker that is gone is fenced several times over."""


@dataclass
class World:
    """A controller and what pretends to be a broker: its proxies, and connections of its own."""

    quorum: QuorumController
    connections: BrokerConnections
    raft: Any
    address: str
    features: list[common_pb2.FeatureRange]
    proxies: list[socket.socket] = field(default_factory=list)
    epoch: int = -1

    def open_doors(self, count: int = 2) -> None:
        for _ in range(count):
            self.proxies.append(socket.create_server(("127.0.0.1", 0)))

    def close_doors(self) -> None:
        for proxy in self.proxies:
            proxy.close()

    async def register(self, host: str = "127.0.0.1", ports: tuple[int, ...] = ()) -> None:
        """Register the broker with its proxies, or with other ports, and let it serve."""
        grpc_port, *kafka_ports = ports or tuple(proxy.getsockname()[1] for proxy in self.proxies)
        kinds = [(grpc_port, "GRPC"), *((port, "PLAINTEXT") for port in kafka_ports)]
        request = pb.RegisterBrokerRequest(
            broker_id=BROKER,
            cluster_id="c1",
            incarnation_id=b"i" * 16,
            endpoint=common_pb2.Endpoint(host=host, port=grpc_port),
            features=self.features,
            listeners=[
                common_pb2.ListenerEndpoint(name=f"L{port}", host=host, port=port, security_protocol=kind)
                for port, kind in kinds
            ],
        )
        async with open_channel(self.address) as channel:
            self.epoch = (await ControllerServiceStub(channel).RegisterBroker(request)).broker_epoch
            await self.heartbeat(channel)

    async def heartbeat(self, channel: grpc.aio.Channel) -> None:
        request = pb.BrokerHeartbeatRequest(
            broker_id=BROKER, broker_epoch=self.epoch, current_metadata_offset=self.epoch
        )
        assert not (await ControllerServiceStub(channel).BrokerHeartbeat(request)).is_fenced

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[grpc.aio.UnaryUnaryCall[Any, Any]]:
        """Hold a connection of its own, which breaks at the end."""
        async with open_channel(self.address) as channel:
            request = pb.HoldConnectionRequest(broker_id=BROKER, broker_epoch=self.epoch)
            call = ControllerServiceStub(channel).HoldConnection(request)
            while not self.connections.has_call(BROKER, self.epoch):  # type: ignore[arg-type]
                await self.heartbeat(channel)
            yield call

    @property
    def is_fenced(self) -> bool:
        return self.quorum.controller.committed.brokers[BROKER].fenced  # type: ignore[index]

    async def stays_unfenced(self) -> bool:
        return not await self.is_fenced_within(LONG_ENOUGH_S)

    async def wait_fenced(self) -> None:
        assert await self.is_fenced_within(5)

    async def is_fenced_within(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.is_fenced:
                return True
            await asyncio.sleep(0.01)
        return False


@pytest.fixture
def play(
    new_raft: Callable[[], Any], features: list[common_pb2.FeatureRange]
) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    async def run(test: Callable[[World], Awaitable[None]]) -> None:
        raft, feed = new_raft(), MetadataFeed()
        controller = Controller(ControllerConfig("c1"), SequentialTopicIds())
        quorum = QuorumController(controller, raft, feed, 9_000, clock_ms)
        connections = BrokerConnections(quorum, clock_ms)
        server = grpc.aio.server(options=server_options())
        port = bind_port(server, "127.0.0.1", 0)
        controller_service("c1", quorum, feed, connections).add_to(server, Intake(Charge(ByteBudget(1 << 20))))
        await raft.start(quorum)
        await server.start()
        raft.elect(1)
        examiner = asyncio.create_task(connections.run(), name="broken-connections")
        world = World(quorum, connections, raft, f"127.0.0.1:{port}", features)
        try:
            async with asyncio.timeout(10):
                await test(world)
        finally:
            world.close_doors()
            examiner.cancel()
            await asyncio.wait([examiner])
            await server.stop(0)

    return lambda test: asyncio.run(run(test))


def clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def test_broker_is_fenced_when_its_connection_broke_and_all_its_listeners_refuse(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding():
            world.close_doors()
            assert await world.stays_unfenced(), "its connection stands"
        begin = time.monotonic()
        await world.wait_fenced()
        assert time.monotonic() - begin < 2

    play(test)


def test_broker_is_fenced_when_a_listener_closes_only_after_the_connection(play: Any) -> None:
    """The kernel closes the files of a killed process one by one."""

    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding():
            world.proxies[0].close()
        await asyncio.sleep(0.05)
        world.close_doors()
        await world.wait_fenced()

    play(test)


def test_broker_is_left_to_its_session_while_one_of_its_listeners_accepts(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding():
            world.proxies[0].close()
        assert await world.stays_unfenced()

    play(test)


def test_broker_is_left_to_its_session_when_its_address_is_not_the_one_that_it_comes_from(play: Any) -> None:
    """Behind something that translates addresses a refusal may be of whoever stands in between."""

    async def test(world: World) -> None:
        world.open_doors()
        ports = tuple(proxy.getsockname()[1] for proxy in world.proxies)
        await world.register("127.0.0.2", ports)
        async with world.holding():
            world.close_doors()
        assert await world.stays_unfenced()

    play(test)


def test_broker_is_left_to_its_session_when_its_name_is_not_known(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register("no-such-host.invalid", tuple(proxy.getsockname()[1] for proxy in world.proxies))
        async with world.holding():
            world.close_doors()
        assert await world.stays_unfenced()

    play(test)


def test_broker_is_known_by_its_name(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register("localhost", tuple(proxy.getsockname()[1] for proxy in world.proxies))
        async with world.holding():
            world.close_doors()
        await world.wait_fenced()

    play(test)


def test_broker_that_holds_another_connection_lives(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding() as call:
            async with world.holding():
                world.close_doors()
                call.cancel()
                assert await world.stays_unfenced(), "the earlier one was given up"
            await world.wait_fenced()

    play(test)


def test_broker_that_lives_is_fenced_once_at_most_for_a_listener_that_refuses(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding():
            world.close_doors()
        await world.wait_fenced()
        for _ in range(2):
            async with world.holding():
                assert not world.is_fenced
            assert await world.stays_unfenced()

    play(test)


def test_connection_that_has_call_ends_with_the_leadership(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding() as call:
            world.raft.elect(2)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert error_from_rpc(caught.value).code is ErrorCode.NOT_CONTROLLER

    play(test)


def test_connection_that_breaks_when_another_controller_leads_says_nothing(play: Any) -> None:
    async def test(world: World) -> None:
        world.open_doors()
        await world.register()
        async with world.holding():
            world.close_doors()
            world.raft.elect(2)
        assert await world.stays_unfenced()

    play(test)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5000", "fe80::1%eth0"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:5000", "10.0.0.1"),
        ("unix:/run/socket", "None"),
        ("ipv4:", "None"),
    ],
)
def test_address_of_peer_is_read_as_grpc_writes_it(peer: str, address: str) -> None:
    assert str(address_of_peer(peer)) == address
