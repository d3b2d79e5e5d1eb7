"""Bytes from whoever is on the network: they end one connection, and nobody else notices."""

import asyncio
import logging
import struct

import pytest
from toy_listener import Client, open_listener, request, run, until

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest
from tidelog_node.kafka.server.limits import ListenerLimits

METADATA, PRODUCE, API_VERSIONS = ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.API_VERSIONS
_HEAD = struct.Struct(">ihhih")
_HOSTILE = {
    "negative size": struct.pack(">i", -1) + bytes(100),
    "smallest size": struct.pack(">i", -(2**31)),
    "no size": struct.pack(">i", 0) + bytes(100),
    "size without a header": struct.pack(">i", 9) + bytes(9),
    "huge size": struct.pack(">i", 2**31 - 1) + bytes(100),
    "one byte over the limit": struct.pack(">i", 100 * 1024**2 + 1) + bytes(100),
    "another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("160301020001000001fc0303") + bytes(200),
    "unknown API": request(METADATA, 1).replace(b"\0\3\0\1", b"\x7f\xff\0\1"),
    "negative API": request(METADATA, 1).replace(b"\0\3\0\1", b"\xff\xff\0\1"),
    "API that is not served": request(ApiKey.CREATE_TOPICS, 1),
    "version too new": request(METADATA, 1, version=13),
    "negative version": request(METADATA, 1, version=-1),
    "client id longer than the frame": _HEAD.pack(12, METADATA, 1, 1, 100) + b"ab",
    "client id of negative length": _HEAD.pack(12, METADATA, 1, 1, -2) + b"ab",
    "client id that is not UTF-8": request(METADATA, 1, client_id=b"\xff\xfe"),
    "no tagged fields in a flexible header": _HEAD.pack(10, METADATA, 9, 1, -1),
    "more tagged fields than bytes": _HEAD.pack(16, METADATA, 9, 1, -1) + b"\xff\xff\xff\xff\x0f\0",
    "tagged field longer than the frame": _HEAD.pack(14, METADATA, 9, 1, -1) + b"\x01\x00\xff\x01",
    "varint without an end": _HEAD.pack(110, METADATA, 9, 1, -1) + b"\xff" * 100,
    "malformed body": request(METADATA, 1, b"malformed"),
    "body too short": request(API_VERSIONS, 1, b"\x05a", version=3),
    "more elements than bytes": request(API_VERSIONS, 1, b"\x02a\x02b\xff\xff\xff\xff\x07", version=3),
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in _HOSTILE.items()])
def test_hostile_bytes_close_their_connection_and_no_other(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            other = await listener.connect()
            await is_served(other)
            hostile = await listener.connect()
            await hostile.send(request(METADATA, 5, b"echo") + data)
            assert await hostile.receive() == (5, b"echo"), "what came before is answered"
            assert await hostile.is_closed()
            await is_served(other)
            await is_served(await listener.connect())

    with caplog.at_level(logging.INFO):
        run(main)
    assert len(caplog.records) == 1
    assert caplog.records[0].getMessage().startswith("Connection 127.0.0.1 of listener PLAINTEXT is closed: ")
    assert caplog.records[0].exc_info is None


def test_tagged_fields_that_nobody_knows_are_skipped() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            head = struct.pack(">hhih", METADATA, 9, 1, -1) + b"\x02\x00\x03abc\x7f\x00" + b"echo"
            await client.send(struct.pack(">i", len(head)) + head)
            assert await client.receive() == (1, b"\0echo")

    run(main)


def test_client_without_a_client_id_is_served() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(METADATA, 1, client_id=None) + request(METADATA, 2, client_id=b""))
            assert [await client.receive() for _ in range(2)] == [(1, b"echo"), (2, b"echo")]

    run(main)


@pytest.mark.parametrize("version", [-1, 5, 99, 32_767])
def test_api_versions_in_an_unknown_version_is_answered_in_version_0_with_the_range(version: int) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(API_VERSIONS, 7, b"whatever comes", version=version))
            first, last = ApiVersionsRequest.VERSIONS
            expected = struct.pack(">hihhh", 35, 1, API_VERSIONS, first, last)
            assert await client.receive() == (7, expected)
            await is_served(client)

    run(main)


@pytest.mark.parametrize("ending", [b"bug", b"fail", b"malformed", b"close"])
@pytest.mark.parametrize("is_late", [False, True])
def test_error_without_a_place_in_the_response_closes_the_connection(
    ending: bytes, is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client, other = await listener.connect(), await listener.connect()
            if is_late:
                await client.send(request(PRODUCE, 1, b"echo") + request(PRODUCE, 2, b"wait"))
                await listener.answer(2, ending)
            else:
                await client.send(request(PRODUCE, 1, b"echo") + request(PRODUCE, 2, ending))
            assert await client.receive() == (1, b"echo")
            assert await client.is_closed()
            await is_served(other)

    run(main)
    [record] = caplog.records
    is_foreseen = ending in (b"malformed", b"close")
    assert (record.levelno, record.exc_info is None) == (logging.WARNING if is_foreseen else logging.ERROR, is_foreseen)


def test_flood_of_hostile_connections_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            for _ in range(50):
                client = await listener.connect()
                await client.send(b"\xff" * 64)
                assert await client.is_closed()
                client.close()

    run(main)
    assert len(caplog.records) == 10


def test_clients_that_try_grpc_on_a_kafka_listener_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            for data in (*[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] * 20, b"\xff" * 64):
                client = await listener.connect()
                await client.send(data)
                assert await client.is_closed()
                client.close()

    with caplog.at_level(logging.INFO):
        run(main)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_clients_that_vanish_in_every_state_leave_nothing_behind() -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(), request_limit=300 * 1024) as listener:
            stays = await listener.connect()
            large = request(PRODUCE, 2, b"echo" + bytes(200 * 1024))
            for sent in (
                b"",
                b"\0",
                request(METADATA, 1)[:9],
                large[: len(large) // 2],
                request(PRODUCE, 1, b"wait") + large[:1_000],
                request(PRODUCE, 1, b"wait " + bytes(200 * 1024)) + large,
                request(PRODUCE, 1, b"wait") + request(PRODUCE, 2, b"big 5000000"),
                request(METADATA, 1, b"big 20000000"),
                request(METADATA, 1, b"wait") + request(METADATA, 2) * 10,
            ):
                client = await listener.connect(receive_buffer=4_096)
                sending = asyncio.create_task(client.send(sent))
                await asyncio.wait([sending], timeout=0.05)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                client.close()
                for waiting in list(listener.waiting):
                    # Who is not read from is not seen to go before it is answered.
                    future = listener.waiting.pop(waiting)
                    if not future.done():
                        future.set_result(b"done")
                await is_served(stays)
            await until(lambda: listener.listeners.connection_count == 1)
            await until(lambda: (listener.requests.taken, listener.responses.taken) == (0, 0))

    run(main)


def test_flood_of_hostile_connections_does_not_hide_what_goes_wrong_here(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_listener() as listener:
            for data in (*[b"\xff" * 64] * 20, request(METADATA, 1, b"bug")):
                client = await listener.connect()
                await client.send(data)
                assert await client.is_closed()
                client.close()

    run(main)
    assert caplog.records[-1].levelno == logging.ERROR


async def is_served(client: Client) -> None:
    await client.send(request(METADATA, 77))
    assert await client.receive() == (77, b"echo")
