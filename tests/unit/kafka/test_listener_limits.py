"""The listener's limits of bytes, connections and time, and the release of everything that counts towards them."""

import asyncio
import errno
import logging
import socket
import struct

import pytest
from support.metric_values import values
from toy_listener import Client, open_listener, request, run, until

from tidelog_foundation.config.connections import OwnLimits
from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.connection_counts import ACCEPTED, CLOSED, CONNECTIONS, REFUSED
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.kafka.server.listener import KafkaListeners

METADATA, FETCH, PRODUCE = ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE
KIB = 1024


def test_frame_larger_than_a_request_may_be_closes_the_connection() -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(request_max_bytes=1_000)) as listener:
            client = await listener.connect()
            largest = request(METADATA, 1, b"echo" + bytes(1_000 - 16))
            assert len(largest) == 1_004
            await client.send(largest)
            assert (await client.receive())[0] == 1
            await client.send(struct.pack(">i", 1_001))
            assert await client.is_closed()

    run(main)


def test_connections_over_the_limit_are_closed_at_once_and_may_come_later() -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(max_connections=2)) as listener:
            clients = [await listener.connect() for _ in range(2)]
            await until(lambda: listener.listeners.connection_count == 2)
            assert await (await listener.connect()).is_closed()
            clients[0].close()
            await until(lambda: listener.listeners.connection_count == 1)
            families = tuple(listener.listeners.families())
            assert values(families, REFUSED) == {("PLAINTEXT", "max.connections"): 1}
            assert values(families, ACCEPTED) == {("PLAINTEXT",): 2}
            assert values(families, CONNECTIONS) == values(families, CLOSED) == {("PLAINTEXT",): 1}
            await is_served(await listener.connect())
            await is_served(clients[1])

    run(main)


def test_connections_of_one_address_are_bounded_and_those_of_another_are_not(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(max_connections_per_ip=1)) as listener:
            await is_served(await listener.connect())
            for _ in range(30):
                assert await (await listener.connect()).is_closed()
            assert values(listener.listeners.families(), REFUSED) == {("PLAINTEXT", "max.connections.per.ip"): 30}
            other = socket.socket()
            other.bind(("127.0.0.2", 0))
            other.setblocking(False)
            await asyncio.get_running_loop().sock_connect(other, ("127.0.0.1", listener.listeners.ports["PLAINTEXT"]))
            client = Client(other)
            listener.clients.append(client)
            await is_served(client)

    with caplog.at_level(logging.WARNING):
        run(main)
    lines = [r.getMessage() for r in caplog.records if "max.connections.per.ip" in r.getMessage()]
    assert lines[0] == "A connection from 127.0.0.1 is refused: it has 1 connections, the limit max.connections.per.ip"
    assert len(lines) == 10, "whoever connects again and again does not fill the log"


def test_node_is_let_in_by_the_inter_broker_listener_when_others_have_all_connections() -> None:
    async def main() -> None:
        names = ("CLIENTS", "NODES")
        async with open_listener(ListenerLimits(max_connections=2), names=names, inter_broker="NODES") as listener:
            silent, active = await listener.connect("CLIENTS"), await listener.connect("CLIENTS")
            await is_served(silent)
            await asyncio.sleep(0.01)
            await is_served(active)
            await is_served(await listener.connect("NODES"))
            assert await silent.is_closed()
            await is_served(active)
            assert await (await listener.connect("CLIENTS")).is_closed()

    run(main)


def test_connections_of_a_listener_have_a_limit_of_their_own_and_so_have_those_of_nodes() -> None:
    async def main() -> None:
        limits = ListenerLimits(of_listeners={"CLIENTS": OwnLimits(max_connections=2), "NODES": OwnLimits(1)})
        names = ("CLIENTS", "OTHERS", "NODES")
        async with open_listener(limits, names=names, inter_broker="NODES") as listener:
            clients = [await listener.connect("CLIENTS") for _ in range(2)]
            for client in clients:
                await is_served(client)
            assert await (await listener.connect("CLIENTS")).is_closed()
            await is_served(await listener.connect("OTHERS"))
            await is_served(await listener.connect("NODES"))
            assert await (await listener.connect("NODES")).is_closed()
            assert values(listener.listeners.families(), REFUSED) == {
                (name, "max.connections"): 1 for name in ("CLIENTS", "NODES")
            }
            clients[0].close()
            await until(lambda: listener.listeners.connection_count == 3)
            await is_served(await listener.connect("CLIENTS"))
            listener.listeners.change_limits(ListenerLimits(of_listeners={"CLIENTS": OwnLimits(3)}))
            await is_served(await listener.connect("CLIENTS"))
            assert await (await listener.connect("CLIENTS")).is_closed()
            await is_served(await listener.connect("NODES"))

    run(main)


def test_listener_has_an_idle_time_of_its_own() -> None:
    async def main() -> None:
        limits = ListenerLimits(of_listeners={"SHORT": OwnLimits(max_idle_s=0.1)})
        async with open_listener(limits, names=("SHORT", "LONG")) as listener:
            short, long = await listener.connect("SHORT"), await listener.connect("LONG")
            assert await short.is_closed()
            await is_served(long)

    run(main)


def test_idle_connection_is_closed_and_one_with_a_request_under_way_is_not() -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(max_idle_s=0.2)) as listener:
            waiting, idle = await listener.connect(), await listener.connect()
            await waiting.send(request(FETCH, 1, b"wait"))
            assert await idle.is_closed()
            await asyncio.sleep(0.3)
            await listener.answer(1)
            assert (await waiting.receive())[0] == 1
            assert await waiting.is_closed()

    run(main)


@pytest.mark.parametrize("part", [3, 5, 7, 100, 70_000])
def test_sender_that_stops_in_the_middle_of_a_frame_is_closed_and_its_memory_given_back(part: int) -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(frame_pause_s=0.1)) as listener:
            client = await listener.connect()
            await client.send(request(PRODUCE, 1, b"echo" + bytes(100_000))[:part])
            if part > 5:
                await until(lambda: listener.requests.taken > 100_000)
            assert await client.is_closed()
            await listener.is_at_rest()

    run(main)


def test_sender_that_is_too_slow_for_its_frame_is_closed() -> None:
    async def creep(client: Client) -> None:
        for byte in request(METADATA, 1, b"echo" + bytes(10_000)):
            await client.send(bytes([byte]))
            await asyncio.sleep(0.01)

    async def main() -> None:
        async with open_listener(ListenerLimits(frame_pause_s=0.2, frame_bytes_per_s=10**6)) as listener:
            client = await listener.connect()
            creeping = asyncio.create_task(creep(client))
            assert await client.is_closed()
            creeping.cancel()
            await asyncio.gather(creeping, return_exceptions=True)

    run(main)


def test_produce_waits_for_memory_before_it_is_received_and_others_go_on() -> None:
    async def main() -> None:
        async with open_listener(request_limit=300 * KIB) as listener:
            first, second, follower = [await listener.connect() for _ in range(3)]
            await first.send(request(PRODUCE, 1, b"wait " + bytes(200 * KIB)))
            await listener.has_begun(1)
            frame = request(PRODUCE, 2, b"echo" + bytes(200 * KIB))
            await second.send(frame[:1_000])
            sending = asyncio.create_task(second.send(frame[1_000:]))
            for n in (3, 4):
                await follower.send(request(FETCH, n, b"echo" + bytes(50 * KIB)))
                assert (await follower.receive())[0] == n
            await follower.send(request(FETCH, 5, b"echo" + bytes(70 * KIB)))
            assert (await follower.receive())[0] == 5
            assert (2, "echo" + "\0" * 200 * KIB) not in listener.begun
            assert 200 * KIB < listener.requests.taken < 300 * KIB
            await listener.answer(1)
            assert (await first.receive())[0] == 1
            assert (await second.receive())[0] == 2
            await sending
            assert listener.requests.taken == 0

    run(main)


def test_frame_that_does_not_come_does_not_hold_up_others_for_long() -> None:
    async def main() -> None:
        limits = ListenerLimits(wanted_frame_bytes=100 * KIB, wanted_pause_s=0.1)
        async with open_listener(limits, request_limit=300 * KIB) as listener:
            hostile, alone, other = [await listener.connect() for _ in range(3)]
            await hostile.send(request(PRODUCE, 1, bytes(280 * KIB))[:500])
            await until(lambda: listener.requests.taken > 280 * KIB)
            await alone.send(request(FETCH, 2, b"echo"))
            assert (await alone.receive())[0] == 2
            await asyncio.sleep(0.2)
            assert listener.listeners.connection_count == 3, "nobody wants its memory yet"
            await other.send(request(PRODUCE, 3, b"echo" + bytes(100 * KIB)))
            assert (await other.receive())[0] == 3
            assert await hostile.is_closed()

    run(main)


def test_half_received_frames_do_not_hold_each_other_up() -> None:
    async def main() -> None:
        async with open_listener(request_limit=256 * KIB) as listener:
            clients = [await listener.connect() for _ in range(6)]
            frames = [request(PRODUCE, n, b"echo" + bytes(100 * KIB)) for n in range(6)]
            for client, frame in zip(clients, frames, strict=True):
                await client.send(frame[:500])
            rest = [client.send(frame[500:]) for client, frame in zip(clients, frames, strict=True)]
            sending = asyncio.gather(*reversed(rest))
            answers = await asyncio.gather(*(client.receive() for client in clients))
            assert [n for n, _ in answers] == list(range(6))
            await sending

    run(main)


def test_request_larger_than_the_whole_budget_is_served_when_nothing_else_is() -> None:
    async def main() -> None:
        async with open_listener(request_limit=10 * KIB) as listener:
            first, second = await listener.connect(), await listener.connect()
            await asyncio.gather(
                first.send(request(PRODUCE, 1, b"echo" + bytes(100 * KIB))),
                second.send(request(PRODUCE, 2, b"echo" + bytes(100 * KIB))),
                first.receive(),
                second.receive(),
            )

    run(main)


@pytest.mark.parametrize("body", [b"none", b"echo", b"malformed", b"bug", b"wait"])
def test_memory_of_a_request_is_given_back_however_it_ends(body: bytes) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(PRODUCE, 1, body) + request(PRODUCE, 2, b"echo"))
            if body == b"wait":
                await listener.answer(1, b"bug")
            if body in (b"none", b"echo"):
                while (await client.receive())[0] != 2:
                    pass
                assert listener.requests.taken == 0
            else:
                assert await client.is_closed()
            await until(lambda: listener.requests.taken == 0)

    run(main)


def test_connection_that_is_lost_waiting_for_memory_leaves_its_place() -> None:
    async def main() -> None:
        async with open_listener(request_limit=300 * KIB) as listener:
            clients = [await listener.connect() for _ in range(3)]
            await clients[0].send(request(PRODUCE, 1, b"wait " + bytes(200 * KIB)))
            await listener.has_begun(1)
            await clients[1].send(request(PRODUCE, 2, b"echo" + bytes(200 * KIB))[:500])
            await until(lambda: listener.listeners.connection_count == 3)
            await clients[2].send(request(PRODUCE, 3, b"echo" + bytes(50 * KIB))[:500])
            await listener.listeners.stop(0)
            await listener.is_at_rest()

    run(main)


def test_slow_reader_gets_all_when_it_reads_and_begins_nothing_more_meanwhile() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            slow, other = await listener.connect(receive_buffer=4 * KIB), await listener.connect()
            size = 8 * KIB * KIB
            await slow.send(b"".join(request(FETCH, n, b"big %d" % size) for n in range(3)))
            await until(lambda: listener.responses.taken > 0)
            await is_served(other)
            assert len([1 for _, word in listener.begun if word == "big"]) == 1
            assert listener.responses.taken == 2 * size
            slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KIB * KIB)
            for n in range(3):
                correlation_id, body = await slow.receive()
                assert (correlation_id, len(body)) == (n, size)
            await until(lambda: listener.responses.taken == 0)

    run(main)


def test_answers_behind_one_that_a_slow_reader_does_not_take_are_counted_until_they_leave() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect(receive_buffer=4 * KIB)
            size = 8 * KIB * KIB
            await client.send(request(PRODUCE, 1, b"wait") + request(PRODUCE, 2, b"big %d" % size))
            await listener.has_begun(1, 2)
            await until(lambda: listener.responses.taken == 2 * size)
            await listener.answer(1)
            assert await client.receive() == (1, b"done")
            assert (await client.receive())[0] == 2
            await until(lambda: listener.responses.taken == 0)

    run(main)


def test_reader_that_takes_nothing_is_closed_and_what_it_was_owed_is_given_back() -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(max_idle_s=0.3)) as listener:
            client = await listener.connect(receive_buffer=4 * KIB)
            await client.send(request(FETCH, 1, b"big %d" % (8 * KIB * KIB)))
            await until(lambda: listener.responses.taken > 0)
            await until(lambda: listener.listeners.connection_count == 0)
            await listener.is_at_rest()

    run(main)


def test_reader_that_takes_little_by_little_is_kept() -> None:
    async def main() -> None:
        # With small buffers on the way each bit that the client takes is seen.
        async with open_listener(ListenerLimits(max_idle_s=0.8, send_buffer_bytes=16 * KIB)) as listener:
            client = await listener.connect(receive_buffer=16 * KIB)
            size = 700 * KIB
            await client.send(request(FETCH, 1, b"big %d" % size))
            left = size + 8
            while left:
                await asyncio.sleep(0.03)
                part = await asyncio.get_running_loop().sock_recv(client.sock, 32 * KIB)
                assert part, "the connection was closed"
                left -= len(part)

    run(main)


def test_port_in_use_is_told_and_no_port_stays_taken() -> None:
    with socket.socket() as free, socket.socket() as listening:
        free.bind(("127.0.0.1", 0))
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        ports = [s.getsockname()[1] for s in (free, listening)]
        free.close()
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{ports[1]}: Address already in use"):
            KafkaListeners.bind([NamedListener(str(p), "127.0.0.1", p) for p in ports], ListenerLimits())
        with KafkaListeners.bind([NamedListener("FREE", "127.0.0.1", ports[0])], ListenerLimits()) as bound:
            assert bound.ports == {"FREE": ports[0]}


def test_bound_listener_answers_nobody_before_it_serves() -> None:
    with KafkaListeners.bind([NamedListener("A", "127.0.0.1", 0)], ListenerLimits()) as bound, socket.socket() as early:
        assert early.connect_ex(("127.0.0.1", bound.ports["A"])) == errno.ECONNREFUSED


def test_buffers_of_connections_are_the_systems_unless_they_are_configured() -> None:
    address = NamedListener("A", "127.0.0.1", 0)
    with (
        KafkaListeners.bind([address], ListenerLimits(send_buffer_bytes=20_000, receive_buffer_bytes=30_000)) as own,
        KafkaListeners.bind([address], ListenerLimits()) as default,
        socket.socket() as fresh,
    ):
        for option, size in ((socket.SO_SNDBUF, 20_000), (socket.SO_RCVBUF, 30_000)):
            # Linux doubles it.
            assert own.sockets["A"].getsockopt(socket.SOL_SOCKET, option) in (size, 2 * size)
            expected = fresh.getsockopt(socket.SOL_SOCKET, option)
            assert default.sockets["A"].getsockopt(socket.SOL_SOCKET, option) == expected


async def is_served(client: Client) -> None:
    await client.send(request(METADATA, 77))
    assert await client.receive() == (77, b"echo")
