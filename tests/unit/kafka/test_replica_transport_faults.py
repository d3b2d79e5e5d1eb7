"""A leader that fails in the middle of what it says to a follower: each fetch ends, and none spoils the next."""

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable

import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.kafka.client.replica_transport import KafkaReplicaTransport
from tidelog_node.kafka.protocol.api_keys import ApiKey

TOPIC_ID = b"0123456789abcdef"
LONG_S = 30
SOON_S = 5
SHORTLY_S = 0.2
Script = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def fetch_response(session_id: int) -> bytes:
    """Return the body of a response without topics, header's tags included: error and throttle time are 0."""
    return b"\0" + struct.pack(">ihi", 0, 0, session_id) + b"\1\0"


def frame(correlation_id: bytes, body: bytes, announced: int | None = None) -> bytes:
    return struct.pack(">i", 4 + len(body) if announced is None else announced) + correlation_id + body


class Leader:
    """Answers ApiVersions as it should, and each fetch by the script that is its turn; with no script left rightly."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0
        self.fetches = 0

    def kill(self, server: asyncio.Server) -> None:
        """Be gone, with all connections."""
        server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def close(self, server: asyncio.Server) -> None:
        """Listen no more, and wait until everybody has gone."""
        server.close()
        await server.wait_closed()
        while self._writers:  # noqa: ASYNC110 what is waited for has no event
            await asyncio.sleep(0.001)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()
        self._writers.discard(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            [size] = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            key, correlation_id = struct.unpack(">h", request[:2])[0], request[4:8]
            if key == ApiKey.API_VERSIONS:
                writer.write(frame(correlation_id, struct.pack(">hihhh", 0, 1, ApiKey.FETCH, 4, 16)))
                continue
            self.fetches += 1
            if self._scripts:
                await self._scripts.pop(0)(correlation_id, writer)
            else:
                writer.write(frame(correlation_id, fetch_response(7)))


async def cut_off(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """Killed with half of the response sent."""
    writer.write(frame(correlation_id, fetch_response(7), announced=1_000_000))
    await writer.drain()
    writer.transport.abort()


async def fall_silent(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """Stopped with half of the response sent."""
    writer.write(frame(correlation_id, fetch_response(7), announced=1_000_000))


async def say_nothing(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """Stopped before it answers."""


async def say_too_much(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """More bytes than the response was announced with."""
    writer.write(frame(correlation_id, fetch_response(7)) + b"more")


async def announce_too_much(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(frame(correlation_id, b"", announced=2**31 - 1))


async def answer_another(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """The answer to a request that was given up long ago."""
    writer.write(frame(struct.pack(">i", 99), fetch_response(7)))


def request() -> FetchRequest:
    wanted = {(TOPIC_ID, 0): FetchSpec(TOPIC_ID, 0, 1 << 20, 0, None, 0)}
    return FetchRequest(wanted, 1 << 20, 0, 1, (2, 0), cluster_id="c", session=SessionStep(0, 0))


@contextlib.asynccontextmanager
async def serving(leader: Leader):
    server = await asyncio.start_server(leader.serve, "127.0.0.1", 0)
    transport = KafkaReplicaTransport("node-2-fetcher")
    try:
        yield transport, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await transport.close()
        await leader.close(server)


@pytest.mark.parametrize(
    ("script", "timeout_s", "code", "told"),
    [
        (cut_off, LONG_S, ErrorCode._TRANSPORT, "is lost"),
        (fall_silent, SHORTLY_S, ErrorCode.REQUEST_TIMED_OUT, "has not answered in 0.2 s"),
        (say_nothing, SHORTLY_S, ErrorCode.REQUEST_TIMED_OUT, "has not answered in 0.2 s"),
        (say_too_much, LONG_S, ErrorCode._TRANSPORT, "4 bytes after the only expected response"),
        (announce_too_much, LONG_S, ErrorCode._TRANSPORT, f"a response of {2**31 - 1} bytes"),
        (answer_another, LONG_S, ErrorCode._TRANSPORT, "a response to request 99, not to 2"),
    ],
)
def test_fetch_ends_when_the_leader_fails_in_the_middle_and_the_next_has_another_connection(
    script, timeout_s, code, told
):
    async def run():
        leader = Leader(script)
        async with asyncio.timeout(SOON_S), serving(leader) as (transport, address):
            with pytest.raises(TidelogError, match=told) as failed:
                await transport.fetch(address, request(), timeout_s)
            assert failed.value.code is code
            assert (await transport.fetch(address, request(), SOON_S)).session_id == 7
            assert leader.connections == 2
            assert len(transport._connections._address_of) == 1, "the one that failed is forgotten"

    asyncio.run(run())


def test_answer_to_a_fetch_that_was_given_up_is_dropped_and_its_connection_is_free_again():
    async def run():
        go_on = asyncio.Event()

        async def answer_late(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            writer.write(frame(correlation_id, fetch_response(5)))

        leader = Leader(answer_late)
        async with asyncio.timeout(SOON_S), serving(leader) as (transport, address):
            given_up = asyncio.create_task(transport.fetch(address, request(), LONG_S))
            while not leader.fetches:  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.001)
            given_up.cancel()
            await asyncio.wait([given_up])
            assert (await transport.fetch(address, request(), SOON_S)).session_id == 7
            go_on.set()
            while len(transport._connections._free[address]) < 2:  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.001)
            for _ in range(3):
                assert (await transport.fetch(address, request(), SOON_S)).session_id == 7
            assert leader.connections == 2

    asyncio.run(run())


def test_bytes_that_nobody_asked_for_end_the_connection_and_no_fetch():
    async def run():
        async def and_again(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
            writer.write(frame(correlation_id, fetch_response(7)))
            await asyncio.sleep(0.05)
            writer.write(frame(correlation_id, fetch_response(8)))

        leader = Leader(and_again)
        async with asyncio.timeout(SOON_S), serving(leader) as (transport, address):
            assert (await transport.fetch(address, request(), SOON_S)).session_id == 7
            while transport._connections._address_of:  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.001)
            assert (await transport.fetch(address, request(), SOON_S)).session_id == 7
            # The second answer may arrive before the fetch that follows on the same connection.
            assert leader.connections >= 2

    asyncio.run(run())


def test_leader_that_comes_back_at_its_address_is_fetched_from_at_the_next_try():
    """Idle connections are lost with the process; the transport notices their end at once, not at the next fetch."""

    async def run():
        first, second = Leader(), Leader()
        server = await asyncio.start_server(first.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        address = f"127.0.0.1:{port}"
        transport = KafkaReplicaTransport("node-2-fetcher")
        async with asyncio.timeout(SOON_S):
            await transport.fetch(address, request(), SOON_S)
            first.kill(server)
            while transport._connections._address_of:  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.001)
            with pytest.raises(TidelogError) as refused:
                await transport.fetch(address, request(), SOON_S)
            assert refused.value.code is ErrorCode._TRANSPORT
            assert transport._connections._address_of == {}
            again = await asyncio.start_server(second.serve, "127.0.0.1", port)
            assert (await transport.fetch(address, request(), SOON_S)).session_id == 7
            await transport.close()
            await second.close(again)
            await first.close(server)

    asyncio.run(run())


async def answer(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer rightly."""
    writer.write(frame(correlation_id, fetch_response(7)))


async def answer_later(correlation_id: bytes, writer: asyncio.StreamWriter) -> None:
    """Answer after the timeout of the fetch before."""
    await asyncio.sleep(2 * SHORTLY_S)
    await answer(correlation_id, writer)


def test_fetch_has_its_own_timeout_whatever_that_of_the_fetch_before() -> None:
    leader = Leader(answer, answer_later, fall_silent)

    async def run() -> None:
        async with asyncio.timeout(SOON_S), serving(leader) as (transport, address):
            await transport.fetch(address, request(), SHORTLY_S)
            await transport.fetch(address, request(), LONG_S)
            with pytest.raises(TidelogError, match=r"has not answered in 0\.2 s"):
                await transport.fetch(address, request(), SHORTLY_S)
            assert leader.connections == 1

    asyncio.run(run())
