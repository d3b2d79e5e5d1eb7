"""The limits on connections of a controller's listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest

from tidelog.v1 import admin_service_pb2 as admin
from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.admin_service_pb2_grpc import AdminServiceStub
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceStub
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.transport.channels import bind_port
from tidelog_quorum.server.config import QuorumConfig, parse_quorum_config
from tidelog_quorum.server.process import ControllerServer, controller_options, limited_calls

ADDRESS = "127.0.0.1"
FOLLOW = pb.FollowMetadataRequest(cluster_id="c", observer_id=1)
BASE = {
    "node.id": "1",
    "cluster.id": "c",
    "listeners": "CLIENTS://127.0.0.1:1,NODES://127.0.0.1:2",
    "controller.listener.names": "NODES,CLIENTS",
    "listener.security.protocol.map": "CLIENTS:GRPC,NODES:GRPC",
    "controller.quorum.voters": "1@127.0.0.1:2",
    "metadata.log.dir": "/memory",
}
ONE_LISTENER = {"listeners": "NODES://127.0.0.1:2", "controller.listener.names": "NODES"}


def parsed(properties: dict[str, str]) -> QuorumConfig:
    return parse_quorum_config(BASE | properties)


def options(properties: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Return the maximum number of connections of each listener and their idle time."""
    config = parsed(properties)
    limits = config.connection_limits(BASE | properties)

    def of(listener: NamedListener) -> tuple[int, int]:
        own = dict(controller_options(config, limits, listener))
        return int(own["grpc.max_allowed_incoming_connections"]), int(own["grpc.max_connection_idle_ms"])

    return {each.name: of(each) for each in config.controller_listeners.bound}


class Controller:
    """A controller that leads, with its listeners at ports of their own."""

    def __init__(self, raft: Any, ports: dict[str, int]) -> None:
        self.raft = raft
        self.ports = ports

    def channel(self, listener: str) -> grpc.aio.Channel:
        """Return a channel with a connection of its own."""
        own = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        return grpc.aio.insecure_channel(f"{ADDRESS}:{self.ports[listener]}", own)


@asynccontextmanager
async def controller(raft: Any, properties: dict[str, str]) -> AsyncIterator[Controller]:
    config = parsed(properties)
    limits = config.connection_limits(BASE | properties)
    servers, ports = {}, {}
    for each in config.controller_listeners.bound:
        server = servers[each.name] = grpc.aio.server(options=controller_options(config, limits, each))
        ports[each.name] = bind_port(server, ADDRESS, 0)
    calls = limited_calls(config, limits)
    served = ControllerServer(config, servers, raft, calls=calls)
    await served.start()
    raft.elect(1)
    try:
        yield Controller(raft, ports)
    finally:
        await served.stop()


def run(main: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(main(), 20))


def test_listeners_have_kafkas_defaults() -> None:
    found = options({})
    assert {idle_ms for _, idle_ms in found.values()} == {600_000}
    assert found["CLIENTS"] == found["NODES"] == options({"max.connections": str(2**31 - 1)})["CLIENTS"]


def test_listeners_have_their_numbers_of_connections_and_idle_times() -> None:
    found = options(
        {
            "max.connections": "50",
            "connections.max.idle.ms": "9000",
            "listener.name.clients.max.connections": "20",
            "listener.name.clients.connections.max.idle.ms": "1000",
        }
    )
    assert found["CLIENTS"] == (20, 1_000)
    assert found["NODES"][0] > 50, "max.connections does not keep controllers and nodes away"
    assert found["NODES"][1] == 9_000
    assert options({"listener.name.nodes.max.connections": "30"})["NODES"][0] == 30
    assert options(ONE_LISTENER | {"max.connections": "50"})["NODES"][0] == 50


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"max.connections": "0"}, r"0.*max\.connections"),
        ({"max.connections.per.ip": "0"}, r"needs max\.connections\.per\.ip\.overrides"),
        ({"max.connections.per.ip.overrides": "host:5"}, r"host:5"),
        ({"connections.max.idle.ms": "100"}, r"delay\.ms 100 must be less than connections\.max\.idle\.ms 100"),
        ({"listener.name.clients.max.connections": "x"}, r"listener\.name\.clients: .*'x'.*max\.connections"),
        ({"listener.name.other.max.connections": "5"}, "names none of the listeners"),
        ({"listener.name.https.max.connections": "5"}, "names none of the listeners"),
        ({"listener.name.clients.max.connections.per.ip": "5"}, "is not a setting of single listeners"),
        ({"listener.name.clients.max.connection.creation.rate": "5"}, "is not a setting of single listeners"),
    ],
)
def test_invalid_limit_is_named(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parsed(properties)


def test_clients_over_the_limit_of_their_address_are_refused_and_keep_no_node_away(new_raft: Callable[[], Any]) -> None:
    async def main() -> None:
        async with (
            controller(new_raft(), {"max.connections.per.ip": "1"}) as served,
            served.channel("CLIENTS") as first,
            served.channel("CLIENTS") as second,
            served.channel("NODES") as node,
            served.channel("NODES") as voter,
        ):
            stream = ControllerServiceStub(first).FollowMetadata(FOLLOW)
            await stream.read()
            topics = admin.ListTopicsRequest()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await AdminServiceStub(second).ListTopics(topics)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "max.connections.per.ip" in str(refused.value.details())
            await AdminServiceStub(first).ListTopics(topics)
            held = ControllerServiceStub(node).FollowMetadata(FOLLOW)
            await held.read()
            await AdminServiceStub(voter).ListTopics(topics)
            held.cancel()
            stream.cancel()

    run(main)


@pytest.mark.parametrize(("overrides", "is_refused"), [("10.0.0.1:9", True), ("127.0.0.1:2", False)])
def test_single_listener_has_the_limit_of_an_address_and_its_overrides(
    new_raft: Callable[[], Any], overrides: str, is_refused: bool
) -> None:
    async def main() -> None:
        limits = ONE_LISTENER | {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": overrides}
        async with (
            controller(new_raft(), limits) as served,
            served.channel("NODES") as first,
            served.channel("NODES") as second,
        ):
            stream = ControllerServiceStub(first).FollowMetadata(FOLLOW)
            await stream.read()
            call = AdminServiceStub(second).ListTopics(admin.ListTopicsRequest())
            assert await call.code() is (grpc.StatusCode.RESOURCE_EXHAUSTED if is_refused else grpc.StatusCode.OK)
            stream.cancel()

    run(main)


def test_stream_outlives_the_idle_time_of_its_connection_while_idle_ones_are_closed(
    new_raft: Callable[[], Any],
) -> None:
    idle = {"connections.max.idle.ms": "50", "connection.failed.authentication.delay.ms": "10"}

    async def main() -> None:
        async with controller(new_raft(), idle) as served, served.channel("NODES") as channel:
            stream = ControllerServiceStub(channel).FollowMetadata(FOLLOW)
            before = (await stream.read()).committed_offset
            for _ in range(3):
                reader, writer = await asyncio.open_connection(ADDRESS, served.ports["NODES"])
                writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                await reader.read(-1)
                writer.close()
            served.raft.elect(1)
            while (await stream.read()).committed_offset <= before:
                pass
            stream.cancel()

    run(main)
