"""A Kafka listener with SASL: clients are authenticated before their connection exists, and failures are delayed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import struct
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from certificates import Authority
from example_counts import examples
from sasl_clients import (
    authenticate,
    authenticate_response,
    handshake,
    handshake_response,
    mechanisms,
    plain,
    prefixed,
)
from support.metric_values import values
from toy_listener import Client, ToyListener, open_listener, request, run, until

from tidelog_foundation.config import parse_config
from tidelog_foundation.sasl.login_counts import EXPIRED, LOGINS, Result
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.kafka.server.logins import ListenerSasl
from tidelog_node.kafka.server.tls import ListenerTls

METADATA = ApiKey.METADATA
NAME = "SASL_PLAINTEXT"
ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED = 34, 58
VERSIONS = request(ApiKey.API_VERSIONS, 9, b"", version=0)


def open_sasl(
    limits: ListenerLimits | None = None, *, delay_s: float = 0.01, max_session_ms: int = 0, max_bytes: int = 10_000
) -> AbstractAsyncContextManager[ToyListener]:
    sasl: Mapping[str, ListenerSasl] = {NAME: ListenerSasl(mechanisms(max_session_ms), max_bytes, delay_s)}
    return open_listener(limits, names=(NAME, "PLAINTEXT"), sasl=sasl)


async def logged_in(listener: ToyListener, mechanism: str = "PLAIN", token: bytes = b"\0alice\0wonderland") -> Client:
    client = await listener.connect(NAME)
    await client.send(prefixed(handshake(mechanism)))
    await client.receive()
    await client.send(prefixed(authenticate(token)))
    _, body = await client.receive()
    assert authenticate_response(body[1:]).error_code == 0
    return client


async def principal_of(client: Client) -> bytes:
    await client.send(request(METADATA, 3, b"principal"))
    return (await client.receive())[1]


def test_listener_serves_an_authenticated_client_as_its_principal() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            await client.send(VERSIONS)
            assert (await client.receive())[1][:2] == b"\0\0"
            await client.send(prefixed(handshake()))
            assert handshake_response((await client.receive())[1]).mechanisms == ["PLAIN", "STEPS"]
            await client.send(prefixed(plain()))
            await client.receive()
            assert await principal_of(client) == b"User:alice"
            assert values(listener.listeners.families(), LOGINS) == {(NAME, "PLAIN", "success"): 1}

    run(main)


def test_client_may_send_everything_at_once() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            requests = [request(METADATA, n, b"echo") for n in (5, 6, 7)]
            await client.send(prefixed(handshake()) + prefixed(plain()) + b"".join(requests))
            assert [(await client.receive())[0] for _ in range(5)] == [1, 2, 5, 6, 7]

    run(main)


def test_client_may_send_byte_by_byte() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            for byte in prefixed(handshake(version=0)) + prefixed(b"\0alice\0wonderland"):
                await client.send(bytes([byte]))
                await asyncio.sleep(0)
            await client.receive()
            assert await client._exactly(4) == bytes(4), "the server's token is empty"
            assert await principal_of(client) == b"User:alice"

    run(main)


def test_other_listeners_need_no_authentication_and_refuse_it() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect("PLAINTEXT")
            await client.send(prefixed(handshake()))
            assert handshake_response((await client.receive())[1]).error_code == ILLEGAL_SASL_STATE
            await client.send(prefixed(plain()))
            assert authenticate_response((await client.receive())[1][1:]).error_code == ILLEGAL_SASL_STATE
            assert await principal_of(client) == b"User:ANONYMOUS"

    run(main)


def test_refusal_is_delayed_and_then_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_sasl(delay_s=0.2) as listener:
            client = await listener.connect(NAME)
            await client.send(prefixed(handshake()))
            await client.receive()
            begun = asyncio.get_running_loop().time()
            await client.send(prefixed(plain(password="canary")) + request(METADATA, 5, b"echo"))
            _, body = await client.receive()
            assert asyncio.get_running_loop().time() - begun >= 0.19
            assert authenticate_response(body[1:]).error_code == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
            assert listener.begun == []
            assert values(listener.listeners.families(), LOGINS) == {(NAME, "PLAIN", "failure"): 1}

    with caplog.at_level(logging.WARNING):
        run(main)
    [record] = caplog.records
    assert record.getMessage() == (
        "The authentication of a client at 127.0.0.1 to listener SASL_PLAINTEXT with PLAIN has failed: "
        "unknown user or wrong password"
    )
    assert "canary" not in caplog.text


def test_client_that_leaves_at_a_refusal_without_a_confirmation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            await client.send(prefixed(handshake("STEPS")) + prefixed(authenticate(b"confirm")))
            await client.receive()
            await client.receive()
            client.close()
            await until(lambda: bool(caplog.records))
            assert values(listener.listeners.families(), LOGINS) == {(NAME, "STEPS", "failure"): 1}

    with caplog.at_level(logging.WARNING):
        run(main)
    [record] = caplog.records
    assert record.getMessage().endswith("with STEPS has failed: the token is bad")


def test_deferred_step_runs_outside_of_the_event_loop() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            await client.send(prefixed(handshake("STEPS")))
            await client.receive()
            tokens = (b"later again", b"later user alice")
            await client.send(b"".join(prefixed(authenticate(token)) for token in tokens))
            assert bytes(authenticate_response((await client.receive())[1][1:]).auth_bytes) == b"more"
            assert bytes(authenticate_response((await client.receive())[1][1:]).auth_bytes) == b"welcome"
            assert await principal_of(client) == b"User:alice"

    run(main)


@pytest.mark.parametrize("token", [b"bug", b"later bug"])
def test_bug_of_a_mechanism_closes_the_connection_and_is_logged(token: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            await client.send(prefixed(handshake("STEPS")) + prefixed(authenticate(token)))
            await client.receive()
            assert await client.is_closed()

    run(main)
    assert "ZeroDivisionError" in caplog.text


def test_request_beyond_the_limit_is_refused_before_it_is_received(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_sasl(max_bytes=1_000) as listener:
            client = await listener.connect(NAME)
            await client.send(struct.pack(">i", 1_001))
            assert await client.is_closed()

    run(main)
    assert "1001 bytes, sasl.server.max.receive.size is 1000" in caplog.text


def test_client_that_does_not_authenticate_in_time_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_sasl(ListenerLimits(handshake_s=0.1)) as listener:
            client = await listener.connect(NAME)
            await client.send(prefixed(handshake("STEPS")) + prefixed(authenticate(b"again")))
            await client.receive()
            await client.receive()
            assert await client.is_closed()

    run(main)
    assert "has not authenticated in 0.1 s" in caplog.text


def test_unauthenticated_connections_count_towards_the_limit_of_their_address() -> None:
    async def main() -> None:
        async with open_sasl(ListenerLimits(max_connections_per_ip=2)) as listener:
            first = await listener.connect(NAME)
            await first.send(VERSIONS)
            await first.receive()
            second = await logged_in(listener)
            third = await listener.connect(NAME)
            assert await third.is_closed()
            first.close()
            await until(lambda: len(listener.handshakes) == 0)
            assert await principal_of(second) == b"User:alice"
            await logged_in(listener)

    run(main)


def test_many_clients_of_one_address_log_in_at_the_same_time() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            clients = [await listener.connect(NAME) for _ in range(200)]
            for client in clients:
                await client.send(prefixed(handshake()))
            for client in clients:
                await client.receive()
            assert len(listener.handshakes) == 200
            for client in clients:
                await client.send(prefixed(plain()))
                _, body = await client.receive()
                assert authenticate_response(body[1:]).error_code == 0

    run(main)


def test_incomplete_requests_of_all_strangers_together_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_sasl(ListenerLimits(max_login_bytes=10_000)) as listener:
            clients = [await listener.connect(NAME) for _ in range(3)]
            for client in clients:
                await client.send(struct.pack(">i", 9_000) + bytes(4_000))
            await until(lambda: len(listener.handshakes) == 2)
            assert await clients[-1].is_closed()
            for client in clients:
                client.close()
            await until(lambda: len(listener.handshakes) == 0)
            await logged_in(listener)

    run(main)
    assert "clients that are not authenticated have sent too many bytes" in caplog.text


def test_layer_above_tls_authenticates_and_refuses_as_without_it(tmp_path: Path) -> None:
    authority = Authority()
    path = authority.issue("server").write_pem(tmp_path / "server.pem")
    settings = parse_config(SslSettings, {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    tls = {NAME: ListenerTls(CertificateStore(NAME, settings), None)}
    context = ssl.create_default_context(cadata=authority.pem)

    async def connect(listener: ToyListener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = listener.listeners.ports[NAME]
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")

    async def answer(reader: asyncio.StreamReader) -> bytes:
        [size] = struct.unpack(">i", await reader.readexactly(4))
        return (await reader.readexactly(size))[4:]

    async def main() -> None:
        async with open_listener(names=(NAME,), tls=tls, sasl={NAME: ListenerSasl(mechanisms())}) as listener:
            reader, writer = await connect(listener)
            writer.write(prefixed(handshake()) + prefixed(plain()) + request(METADATA, 5, b"principal"))
            await answer(reader)
            assert authenticate_response((await answer(reader))[1:]).error_code == 0
            assert await answer(reader) == b"User:alice"
            writer.write(request(METADATA, 6, b"big 1000000"))
            assert len(await answer(reader)) == 1_000_000
            writer.transport.abort()

            reader, writer = await connect(listener)
            writer.write(prefixed(handshake()) + prefixed(plain(password="wrong")))
            await answer(reader)
            assert authenticate_response((await answer(reader))[1:]).error_code == SASL_AUTHENTICATION_FAILED
            assert await reader.read() == b""
            writer.transport.abort()

    run(main)


def test_tls_handshakes_and_sasl_exchanges_of_an_address_count_together(tmp_path: Path) -> None:
    authority = Authority()
    path = authority.issue("server").write_pem(tmp_path / "server.pem")
    settings = parse_config(SslSettings, {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    tls = {NAME: ListenerTls(CertificateStore(NAME, settings), None)}
    context, sasl = ssl.create_default_context(cadata=authority.pem), {NAME: ListenerSasl(mechanisms())}

    async def main() -> None:
        limits = ListenerLimits(max_connections_per_ip=2)
        async with open_listener(limits, names=(NAME,), tls=tls, sasl=sasl) as listener:
            port = listener.listeners.ports[NAME]
            _, in_exchange = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
            await until(lambda: len(listener.handshakes) == 1)
            _, in_handshake = await asyncio.open_connection("127.0.0.1", port)
            refused, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(refused.read(), 5) == b""
            for each in (in_exchange, in_handshake, writer):
                each.transport.abort()

    run(main)


def test_session_that_expires_closes_the_connection_with_the_next_request() -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=100) as listener:
            client = await logged_in(listener)
            assert await principal_of(client) == b"User:alice"
            await asyncio.sleep(0.11)
            await client.send(request(METADATA, 4, b"echo"))
            assert await client.is_closed()
            assert values(listener.listeners.families(), EXPIRED) == {(NAME,): 1}

    run(main)


def test_reauthentication_extends_the_session() -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=300) as listener:
            client = await logged_in(listener)
            await asyncio.sleep(0.31)
            await client.send(prefixed(handshake(correlation_id=7)))
            assert handshake_response((await client.receive())[1]).error_code == 0
            await client.send(prefixed(authenticate(b"\0alice\0wonderland", correlation_id=8)))
            answer = authenticate_response((await client.receive())[1][1:])
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 300)
            assert await principal_of(client) == b"User:alice"
            assert listener.listeners.login_counts.total(Result.SUCCESS, is_again=True) == 1
            await client.send(prefixed(handshake()))
            assert handshake_response((await client.receive())[1]).error_code == ILLEGAL_SASL_STATE, "too soon"

    run(main)


@pytest.mark.parametrize(
    ("first", "then"), [(b"user alice", b"until alice 60000"), (b"until alice 60000", b"user alice")]
)
def test_reauthentication_may_change_between_a_password_and_a_token_of_the_same_principal(
    first: bytes, then: bytes
) -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=60_000) as listener:
            client = await logged_in(listener, "STEPS", first)
            await client.send(request(METADATA, 4, b"token"))
            assert (await client.receive())[1] == str(first.startswith(b"until")).encode()
            await client.send(prefixed(handshake("STEPS")) + prefixed(authenticate(then)))
            for _ in range(2):
                await client.receive()
            await client.send(request(METADATA, 4, b"token"))
            assert (await client.receive())[1] == str(then.startswith(b"until")).encode()
            assert await principal_of(client) == b"User:alice"

    run(main)


def test_reauthentication_waits_for_requests_in_progress_and_later_ones_for_it() -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=60_000) as listener:
            client = await logged_in(listener)
            await client.send(
                request(ApiKey.PRODUCE, 3, b"wait")
                + prefixed(handshake(correlation_id=4))
                + prefixed(authenticate(b"\0alice\0wonderland", correlation_id=5))
                + request(ApiKey.PRODUCE, 6, b"echo")
            )
            await listener.answer(3)
            assert [(await client.receive())[0] for _ in range(4)] == [3, 4, 5, 6]

    run(main)


@pytest.mark.parametrize(
    ("mechanism", "token", "has_reply"),
    [
        ("PLAIN", b"\0alice\0wrong", True),
        ("PLAIN", b"\0bob\0builder", True),
        ("STEPS", b"user alice", False),
        ("STEPS", b"later", False),
    ],
)
def test_failed_reauthentication_is_delayed_and_closes_the_connection(
    mechanism: str, token: bytes, has_reply: bool
) -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=60_000, delay_s=0.2) as listener:
            client = await logged_in(listener)
            await client.send(prefixed(handshake(mechanism)))
            await client.receive()
            begun = asyncio.get_running_loop().time()
            await client.send(prefixed(authenticate(token)) + request(METADATA, 5, b"echo"))
            if has_reply:
                answer = authenticate_response((await client.receive())[1][1:])
                assert answer.error_code == SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
            assert asyncio.get_running_loop().time() - begun >= 0.19
            assert listener.begun == []
            assert listener.listeners.login_counts.total(Result.FAILURE, is_again=True) == 1

    run(main)


def test_request_during_a_reauthentication_closes_the_connection() -> None:
    async def main() -> None:
        async with open_sasl(max_session_ms=60_000) as listener:
            client = await logged_in(listener)
            await client.send(prefixed(handshake()) + request(METADATA, 5, b"echo"))
            await client.receive()
            assert await client.is_closed()
            assert listener.begun == []

    run(main)


def test_stopping_listener_ends_exchanges_in_progress() -> None:
    async def main() -> None:
        async with open_sasl() as listener:
            client = await listener.connect(NAME)
            await client.send(prefixed(handshake("STEPS")))
            await client.receive()
            await listener.listeners.stop(0)
            assert await client.is_closed()

    run(main)


def test_no_bytes_without_credentials_reach_a_handler() -> None:
    """Random bytes, requests in any order, huge sizes, from many connections at the same time."""
    draws = random.Random(7)
    frames = [
        prefixed(handshake()),
        prefixed(handshake("STEPS")),
        prefixed(handshake(version=0)),
        prefixed(plain(password="wrong")),
        prefixed(authenticate(b"later again")),
        VERSIONS,
        request(METADATA, 1, b"echo"),
        request(ApiKey.PRODUCE, 1, b"echo"),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        b"",
    ]

    async def attack(listener: ToyListener) -> None:
        client = await listener.connect(NAME)
        try:
            for _ in range(draws.randrange(6)):
                await client.send(draws.choice([*frames, draws.randbytes(draws.randrange(40))]))
                await asyncio.sleep(0)
        except ConnectionError:
            pass
        client.close()

    async def main() -> None:
        async with open_sasl(ListenerLimits(handshake_s=1.0), delay_s=0.0) as listener:
            for _ in range(examples(30)):
                await asyncio.gather(*(attack(listener) for _ in range(20)))
                assert listener.begun == []
                assert listener.listeners.connection_count == 0
                assert len(listener.handshakes) <= 20

    run(main)
