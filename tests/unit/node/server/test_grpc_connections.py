"""The limits on connections, calls and logins of gRPC listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import grpc.aio
import pytest

from tidelog_foundation.config.connections import OwnLimits
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.quotas.rate import Windows
from tidelog_foundation.requests.quotas import entity_of
from tidelog_foundation.security import ANONYMOUS
from tidelog_foundation.transport import server_options
from tidelog_foundation.transport.services import RpcContext
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.quotas.client_quotas import ClientQuotas
from tidelog_node.quotas.connection_rates import ConnectionRates
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.grpc_connections import NodeConnections, grpc_server_options

WINDOW_MS = 100
PROPERTIES = {
    "node.id": "1",
    "cluster.id": "c",
    "log.dirs": "/data",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "OUTSIDE://h:1,INSIDE://h:2",
    "listener.security.protocol.map": "OUTSIDE:GRPC,INSIDE:GRPC,GRPC:GRPC",
    "inter.broker.listener.name": "INSIDE",
}


class Rpc:
    """A call of a connection."""

    def __init__(self, connection: str) -> None:
        self._connection = connection
        self.end: Callable[[object], None] = lambda _: None

    def peer(self) -> str:
        return self._connection

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        self.end = callback


def quotas(**limits: float) -> ClientQuotas:
    made = ClientQuotas(lambda: int(asyncio.get_running_loop().time() * 1000), lambda: 0, Windows(2, WINDOW_MS))
    made.follow({entity_of({"ip": None}): limits} if limits else {})
    return made


def connections(limits: ListenerLimits, quotas: ClientQuotas, protected: str | None = None) -> NodeConnections:
    rates = ConnectionRates(quotas.now_ms, quotas.windows)
    own = {name: each.max_creation_rate for name, each in limits.of_listeners.items()}
    rates.change_limits(limits.max_creation_rate, {name: rate for name, rate in own.items() if rate is not None})
    return NodeConnections(limits, rates, quotas, protected)


def run(main: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(main(), 20))


def test_address_has_no_more_connections_with_calls_than_its_limit() -> None:
    async def main() -> None:
        limits = ListenerLimits(max_connections_per_ip=2, max_connections_of_ips={"10.0.0.9": 1})
        limited = connections(limits, quotas())

        def call(connection: str, listener: str = "GRPC") -> Rpc:
            rpc = Rpc(connection)
            assert limited.limited(listener, lambda _: ANONYMOUS)(cast(RpcContext, rpc)) is ANONYMOUS
            return rpc

        def is_refused(connection: str) -> bool:
            try:
                call(connection).end(None)
            except TidelogError as error:
                return error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return False

        first = [call("ipv4:10.0.0.1:5000"), call("ipv4:10.0.0.1:5000")]
        call("ipv4:10.0.0.1:5001", "OTHER")
        assert is_refused("ipv4:10.0.0.1:5002")
        assert not is_refused("ipv4:10.0.0.1:5000")
        assert not is_refused("ipv6:%5B::1%5D:5000")
        call("ipv4:10.0.0.9:1")
        assert is_refused("ipv4:10.0.0.9:2")
        first[0].end(None)
        assert is_refused("ipv4:10.0.0.1:5002")
        first[1].end(None)
        assert not is_refused("ipv4:10.0.0.1:5002")
        assert limited.refused == {("GRPC", "max.connections.per.ip"): 3}
        limited.change_limits(ListenerLimits())
        assert not is_refused("ipv4:10.0.0.9:2")

    run(main)


def test_listener_has_no_more_connections_with_calls_than_a_limit_that_is_lowered_at_run_time() -> None:
    async def main() -> None:
        limited = connections(ListenerLimits(), quotas(), protected="NODES")

        def call(connection: str, listener: str = "GRPC") -> Rpc:
            rpc = Rpc(f"ipv4:10.0.0.1:{connection}")
            limited.limited(listener, lambda _: ANONYMOUS)(cast(RpcContext, rpc))
            return rpc

        call("1").end(None)
        limited.change_limits(ListenerLimits(max_connections=2, of_listeners={"OWN": OwnLimits(1)}))
        first = call("1")
        call("2")
        with pytest.raises(TidelogError, match=r"listener GRPC has 2 connections .max\.connections.") as refused:
            call("3")
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        call("1").end(None)
        call("1", "OWN")
        with pytest.raises(TidelogError, match="listener OWN has 1 connections"):
            call("2", "OWN")
        for connection in "1234":
            call(connection, "NODES")
        first.end(None)
        call("3")
        assert limited.refused == {("GRPC", "max.connections"): 1, ("OWN", "max.connections"): 1}
        limited.change_limits(ListenerLimits())
        call("4")

    run(main)


def test_logins_of_an_address_over_its_quota_are_held_and_refused_and_others_are_not() -> None:
    async def main() -> None:
        limited = connections(ListenerLimits(), quotas(connection_creation_rate=10), protected="NODES")
        began = asyncio.get_running_loop().time()
        await limited.admit_login("GRPC", "10.0.0.1")
        with pytest.raises(TidelogError, match="connection_creation_rate 10") as raised:
            await limited.admit_login("GRPC", "10.0.0.1")
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert asyncio.get_running_loop().time() - began > 0.02, "it is answered late"
        await limited.admit_login("GRPC", "10.0.0.2")
        assert limited.refused == {("GRPC", "connection_creation_rate"): 1}
        for _ in range(10):
            await limited.admit_login("NODES", "10.0.0.1")

    run(main)


def test_logins_over_the_rate_of_their_listener_wait_and_those_of_others_do_not() -> None:
    async def main() -> None:
        limited = connections(ListenerLimits(of_listeners={"SLOW": OwnLimits(max_creation_rate=20)}), quotas())
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(limited.admit_login("FAST", f"10.0.0.{n}") for n in range(50)))
        assert loop.time() - began < 0.25
        began = loop.time()
        await asyncio.gather(*(limited.admit_login("SLOW", f"10.0.0.{n}") for n in range(10)))
        assert loop.time() - began > 0.25, "10 logins at 20 per second"

    run(main)


def test_servers_of_listeners_have_their_numbers_of_connections_and_idle_times() -> None:
    own = {
        "max.connections": "50",
        "connections.max.idle.ms": "9000",
        "listener.name.outside.max.connections": "20",
        "listener.name.outside.connections.max.idle.ms": "1000",
    }
    settings = DynamicNodeConfig(PROPERTIES | own)
    found = {}
    for listener in settings.current.grpc_listeners:
        options = dict(grpc_server_options(settings, listener))
        found[listener.name] = (
            options["grpc.max_allowed_incoming_connections"],
            options["grpc.max_connection_idle_ms"],
        )
    assert found["OUTSIDE"] == (20, 1_000)
    assert int(found["INSIDE"][0]) > 50, "max.connections does not keep nodes away"
    assert found["INSIDE"][1] == 9_000


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"])
def test_connection_that_does_not_complete_its_handshake_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_foundation.transport.channels.HANDSHAKE_MS", 100)

    async def main() -> None:
        server = grpc.aio.server(options=server_options())
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        await asyncio.wait_for(reader.read(-1), 10)
        writer.close()
        await server.stop(0)

    run(main)


@pytest.mark.parametrize(("options", "is_closed"), [({"max_idle_ms": 50}, True), ({}, False)])
def test_connection_without_calls_is_closed_after_its_idle_time(options: dict[str, int], is_closed: bool) -> None:
    async def main() -> None:
        server = grpc.aio.server(options=server_options(**options))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        try:
            await asyncio.wait_for(reader.read(-1), 5 if is_closed else 0.3)
            assert is_closed
        except TimeoutError:
            assert not is_closed
        writer.close()
        await server.stop(0)

    run(main)
