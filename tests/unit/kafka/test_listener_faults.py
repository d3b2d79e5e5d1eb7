"""Faults around connections: clients that are gone, a port that somebody else took, a stop in the middle."""

import asyncio
import os
import resource
import socket
import struct
import time
from types import SimpleNamespace

import pytest
from toy_listener import Client, open_listener, request, run, until

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.connection import Connection
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.kafka.server.listener import KafkaListeners
from tidelog_node.quotas.client_quotas import ClientQuotas

METADATA, PRODUCE = ApiKey.METADATA, ApiKey.PRODUCE
MIB = 1024**2


def test_connection_that_has_just_failed_does_not_end_the_watch_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the failure and the loss of the connection the watch may ask, and the bytes there are no request."""
    asked: list[str | None] = []
    abort = Connection.abort

    def abort_and_ask(connection: Connection) -> None:
        abort(connection)
        asked.append(connection.overdue(asyncio.get_running_loop().time()))

    monkeypatch.setattr(Connection, "abort", abort_and_ask)

    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(b"\xff" * 64)
            assert await client.is_closed()
            assert asked == [None]

    run(main)


def test_clients_that_announce_much_and_are_gone_do_not_hold_up_the_node() -> None:
    async def main() -> None:
        async with open_listener(request_limit=100 * MIB) as listener:
            stays = await listener.connect()
            gone = [await listener.connect() for _ in range(100)]
            for client in gone:
                await client.send(struct.pack(">ihhih", 100 * MIB, PRODUCE, 1, 1, -1))
            await until(lambda: listener.listeners.connection_count == 101)
            begin = time.thread_time()
            for client in gone:
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()
            await until(lambda: listener.listeners.connection_count == 1)
            assert time.thread_time() - begin < 1, "each had its memory cleared"
            await stays.send(request(METADATA, 1))
            assert await stays.receive() == (1, b"echo")

    run(main)


def test_large_frame_grows_as_it_comes_and_is_whole() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            body = b"wait " + bytes(range(256)) * (5 * MIB // 256) + b"end"
            await client.send(request(PRODUCE, 1, body) + request(PRODUCE, 2))
            await listener.has_begun(1, 2)
            await listener.answer(1, body[-3:])
            assert [await client.receive() for _ in range(2)] == [(1, b"end"), (2, b"echo")]

    run(main)


def test_every_node_that_is_let_in_takes_the_place_of_another_connection() -> None:
    async def main() -> None:
        names = ("CLIENTS", "NODES")
        async with open_listener(ListenerLimits(max_connections=4), names=names, inter_broker="NODES") as listener:
            clients = [await listener.connect("CLIENTS") for _ in range(4)]
            await until(lambda: listener.listeners.connection_count == 4)
            address = ("127.0.0.1", listener.listeners.ports["NODES"])
            nodes = [Client(socket.create_connection(address)) for _ in range(4)]
            listener.clients += nodes
            for node in nodes:
                node.sock.setblocking(False)
                await node.send(request(METADATA, 1))
                assert await node.receive() == (1, b"echo")
            for client in clients:
                assert await client.is_closed()
            assert listener.listeners.connection_count == 4

    # asyncio's own loop accepts all that are there in one round.
    asyncio.run(main())


def test_connection_that_is_made_during_the_stop_is_refused() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            waits = await listener.connect()
            await waits.send(request(PRODUCE, 1, b"wait"))
            await listener.has_begun(1)
            connections = listener.listeners._connections
            assert connections is not None
            draining = asyncio.create_task(connections.drain(10))
            await asyncio.sleep(0)
            assert await (await listener.connect()).is_closed()
            await listener.answer(1)
            assert await waits.receive() == (1, b"done")
            await draining

    run(main)


def test_port_that_another_process_listens_on_meanwhile_is_told_by_its_address() -> None:
    async def main() -> None:
        with KafkaListeners.bind([NamedListener("PLAINTEXT", "127.0.0.1", 0)], ListenerLimits()) as listeners:
            port = listeners.ports["PLAINTEXT"]
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("127.0.0.1", port))
                other.listen()
                node = SimpleNamespace(
                    context=SimpleNamespace(response_budget=None, quotas=ClientQuotas(lambda: 0, lambda: 0))
                )
                with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}: Address already in use$"):
                    await listeners.serve(node, {}, None)  # type: ignore[arg-type]
                await listeners.stop(0)

    run(main)


@pytest.mark.parametrize("host", ["::1", "::"])
def test_ipv6_listener_is_reached_and_its_port_can_be_taken_again_at_once(host: str) -> None:
    async def main() -> None:
        port = 0
        for _ in range(3):
            with KafkaListeners.bind([NamedListener("PLAINTEXT", host, port)], ListenerLimits()) as listeners:
                port = listeners.ports["PLAINTEXT"]
                node = SimpleNamespace(
                    context=SimpleNamespace(response_budget=None, quotas=ClientQuotas(lambda: 0, lambda: 0))
                )
                await listeners.serve(node, {}, None)  # type: ignore[arg-type]
                for address in ("127.0.0.1", "::1") if host == "::" else ("::1",):
                    with socket.create_connection((address, port)):
                        await until(lambda: listeners.connection_count == 1)
                        # The node closes first: its port is one that waits (TIME_WAIT) then.
                        if address == "::1":
                            await listeners._connections.drain(0)  # type: ignore[union-attr]
                    await until(lambda: listeners.connection_count == 0)
                await listeners.stop(0)

    run(main)


def test_connections_leave_files_for_the_logs() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        async with open_listener() as listener:
            stays = await listener.connect()
            served = 0
            while True:
                client = await listener.connect()
                await client.send(request(METADATA, 1))
                try:
                    await client.receive()
                except ConnectionError:
                    break
                served += 1
            assert served > 10
            for spare in [socket.socket() for _ in range(10)]:
                spare.close()
            await stays.send(request(METADATA, 2))
            assert await stays.receive() == (2, b"echo")
            for client in listener.clients[1:]:
                client.close()
            await until(lambda: listener.listeners.connection_count == 1)
            late = await listener.connect()
            await late.send(request(METADATA, 3))
            assert await late.receive() == (3, b"echo")

    with open(os.devnull, "rb") as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 120, limits[1]))
    try:
        run(main)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_listener_survives_that_no_file_can_be_opened() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            stays = await listener.connect()
            await stays.send(request(METADATA, 1))
            assert await stays.receive() == (1, b"echo")
            late = [socket.socket() for _ in range(3)]
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (late[0].fileno(), limits[1]))
            try:
                for sock in late:
                    sock.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(
                        sock, ("127.0.0.1", listener.listeners.ports["PLAINTEXT"])
                    )
                begin = time.thread_time()
                await asyncio.sleep(0.2)
                assert time.thread_time() - begin < 0.1, "the loop spins"
                await stays.send(request(METADATA, 2))
                assert await stays.receive() == (2, b"echo")
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for sock in late:
                sock.close()
            client = await listener.connect()
            await client.send(request(METADATA, 3))
            assert await client.receive() == (3, b"echo")

    run(main)
