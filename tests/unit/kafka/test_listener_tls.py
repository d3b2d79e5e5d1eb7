"""A Kafka listener with TLS: handshakes, the principals of clients, and connections that behave as without TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from certificates import Authority, Issued
from toy_listener import ToyListener, open_listener, request, run, until

from tidelog_foundation.config import parse_config
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.principal_mapping import PrincipalMapping
from tidelog_foundation.security.ssl_settings import SslSettings
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.connections import max_handshakes
from tidelog_node.kafka.server.limits import ListenerLimits
from tidelog_node.kafka.server.tls import ListenerTls

METADATA = ApiKey.METADATA
CA, OTHER_CA = Authority(), Authority("Other CA")
SERVER, ALICE = CA.issue("server"), CA.issue("alice", hosts=())


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return SERVER.write_pem(tmp_path / "server.pem")


def store_of(key_file: Path, **settings: str) -> CertificateStore:
    given = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key_file)}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA.pem}
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    return CertificateStore("SSL", parse_config(SslSettings, given | trust | keys))


def open_tls(
    store: CertificateStore, limits: ListenerLimits | None = None, rules: str = "DEFAULT"
) -> AbstractAsyncContextManager[ToyListener]:
    tls = {"SSL": ListenerTls(store, PrincipalMapping(rules))}
    return open_listener(limits, names=("SSL", "PLAINTEXT"), tls=tls)


class Stream:
    """A client's connection with TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def close(self) -> None:
        self.writer.transport.abort()

    async def ask(self, correlation_id: int, body: bytes) -> bytes:
        self.writer.write(request(METADATA, correlation_id, body))
        return await self.receive(correlation_id)

    async def receive(self, correlation_id: int) -> bytes:
        [size] = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        assert struct.unpack_from(">i", frame) == (correlation_id,)
        return frame[4:]


async def connect(
    listener: ToyListener, client: Issued | None = None, authority: Authority = CA, name: str = "SSL"
) -> Stream:
    context = ssl.create_default_context(cadata=authority.pem)
    if client is not None:
        load(context, client)
    port = listener.listeners.ports[name]
    stream = Stream(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost"))
    listener.clients.append(stream)
    return stream


def load(context: ssl.SSLContext, issued: Issued) -> None:
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(issued.write_pem(Path(folder) / "client.pem"))


async def is_refused(attempt: Callable[[], Awaitable[Stream]]) -> None:
    """With TLS 1.3 a client learns with its first read that its certificate is refused."""
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await (await attempt()).ask(1, b"echo")


def test_listener_with_tls_serves_many_requests_in_order(key_file: Path) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            client = await connect(listener)
            client.writer.write(b"".join(request(METADATA, n, b"echo " + bytes(10_000)) for n in range(1, 101)))
            for n in range(1, 101):
                assert await client.receive(n) == b"echo " + bytes(10_000)
            assert await client.ask(101, b"principal") == b"User:ANONYMOUS"

    run(main)


def test_response_with_tls_is_counted_until_the_kernel_has_taken_it(key_file: Path) -> None:
    size = 40_000_000

    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            client = await connect(listener)
            client.writer.write(request(METADATA, 1, b"big %d" % size))
            await until(lambda: listener.responses.taken > 0)
            await asyncio.sleep(0.05)
            assert listener.responses.taken >= size, "the client has not read, and the kernel cannot hold so much"
            assert len(await client.receive(1)) == size
            await until(lambda: listener.responses.taken == 0)
            assert await client.ask(2, b"echo") == b"echo"

    run(main)


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_principal_is_the_mapped_name_of_the_clients_certificate(key_file: Path, auth: str) -> None:
    async def main() -> None:
        store = store_of(key_file, ssl_client_auth=auth)
        async with open_tls(store, rules="RULE:^CN=(.*)$/$1/U,DEFAULT") as listener:
            client = await connect(listener, ALICE)
            assert await client.ask(1, b"principal") == b"User:ALICE"

    run(main)


def test_client_without_a_certificate_is_anonymous_where_one_is_only_requested(key_file: Path) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file, ssl_client_auth="requested")) as listener:
            client = await connect(listener)
            assert await client.ask(1, b"principal") == b"User:ANONYMOUS"

    run(main)


@pytest.mark.parametrize(
    ("client", "text"),
    [
        pytest.param(None, "peer did not return a certificate", id="no certificate"),
        pytest.param(OTHER_CA.issue("alice"), "unable to get local issuer certificate", id="unknown authority"),
        pytest.param(CA.issue("alice", valid_for=timedelta(days=-1)), "certificate has expired", id="expired"),
        pytest.param(CA.issue("bob"), "no rule of ssl.principal.mapping.rules matches", id="no rule"),
    ],
)
def test_client_without_a_valid_certificate_is_refused_with_one_line(
    key_file: Path, client: Issued | None, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = store_of(key_file, ssl_client_auth="required")
        async with open_tls(store, rules="RULE:^CN=alice$/alice/") as listener:
            await is_refused(lambda: connect(listener, client))
            good = await connect(listener, ALICE)
            assert await good.ask(1, b"principal") == b"User:alice"

    with caplog.at_level(logging.INFO):
        run(main)
    [line] = [record.getMessage() for record in caplog.records if "is closed" in record.getMessage()]
    assert line.startswith("A connection from 127.0.0.1 to listener SSL is closed: ")
    assert text in line


def test_client_refuses_a_listener_of_an_unknown_authority(key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect(listener, authority=OTHER_CA)
            await until(lambda: len(caplog.records) == 1)

    with caplog.at_level(logging.INFO):
        run(main)
    line = caplog.records[0].getMessage()
    assert "alert unknown ca" in line or "the client ended the TLS handshake" in line


def test_plain_text_at_a_listener_with_tls_is_closed_with_one_line(
    key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            plain = await listener.connect("SSL")
            await plain.send(request(METADATA, 1, b"echo"))
            assert await plain.is_closed()

    with caplog.at_level(logging.INFO):
        run(main)
    assert [r.getMessage() for r in caplog.records] == [
        "A connection from 127.0.0.1 to listener SSL is closed: the client does not speak TLS"
    ]


def test_tls_at_a_plain_text_listener_is_closed_with_one_line(key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            with pytest.raises(OSError):  # noqa: PT011
                await connect(listener, name="PLAINTEXT")

    with caplog.at_level(logging.INFO):
        run(main)
    [line] = [r.getMessage() for r in caplog.records]
    assert "the client speaks TLS, and this listener is not encrypted" in line


def test_handshake_that_does_not_end_is_closed_in_time(key_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file), ListenerLimits(handshake_s=0.1)) as listener:
            silent = await listener.connect("SSL")
            await silent.send(bytes.fromhex("16030100"))
            assert await silent.is_closed()

    with caplog.at_level(logging.INFO):
        run(main)
    assert "the TLS handshake has not ended after 0.1 s" in caplog.records[0].getMessage()


def test_silent_connections_keep_no_client_away_from_a_listener_with_tls(key_file: Path) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            for _ in range(max_handshakes() + 20):
                await listener.connect("SSL")
            client = await connect(listener)
            assert await client.ask(1, b"echo") == b"echo"

    run(main)


def test_unfinished_handshakes_count_toward_the_connections_of_a_host(key_file: Path) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file), ListenerLimits(max_connections_per_ip=2)) as listener:
            _, _, third = [await listener.connect("SSL") for _ in range(3)]
            assert await third.is_closed()

    run(main)


def test_changed_certificates_are_used_by_new_connections(key_file: Path) -> None:
    async def main() -> None:
        store = store_of(key_file)
        async with open_tls(store) as listener:
            old = await connect(listener)
            CA.issue("renewed").write_pem(key_file)
            store.refresh(datetime.now(UTC))
            new = await connect(listener)
            subject = new.writer.get_extra_info("peercert")["subject"]
            assert subject == ((("commonName", "renewed"),),)
            assert await old.ask(1, b"echo") == b"echo"

    run(main)


def test_listener_without_tls_next_to_one_with_it_is_as_before(key_file: Path) -> None:
    async def main() -> None:
        async with open_tls(store_of(key_file)) as listener:
            plain = await listener.connect("PLAINTEXT")
            await plain.send(request(METADATA, 1, b"principal"))
            assert await plain.receive() == (1, b"User:ANONYMOUS")

    run(main)
