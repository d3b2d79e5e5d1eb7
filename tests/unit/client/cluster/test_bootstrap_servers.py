"""Addresses in bootstrap.servers: Kafka listeners, servers that are not Tidelog, and those where nothing answers."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tidelog import Consumer, KafkaException, Producer
from tidelog.admin import AdminClient
from tidelog.cluster.bootstrap import parse_bootstrap_servers
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport.probe_answers import Answer, Protocol, probe_request, read_answer
from tidelog_node.kafka.apis.api_versions import unsupported_version
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.headers import read_request_header
from tidelog_node.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer

_AT_ONCE_S = 4.0
"""A tenth of a second where nothing else runs."""
Handler = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(handle: Handler) -> Iterator[str]:
    """Serve each connection by ``handle`` in a thread of its own; yields host:port."""

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                handle(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def kafka(grpc_listener: str | None = None, *, version: int = 3) -> Handler:
    """Answer ApiVersions, as Apache Kafka does where no gRPC listener is given, and break off any other request."""

    def handle(connection: socket.socket) -> None:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
        if size > 1_000:
            return
        header = read_request_header(connection.recv(size, socket.MSG_WAITALL))
        body = api_versions(grpc_listener) if header.version <= version else b"".join(unsupported_version())
        frame = struct.pack(">i", header.correlation_id) + body
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        connection.recv(1)

    return handle


def api_versions(grpc_listener: str | None) -> bytes:
    writer = Writer()
    encode(ApiVersionsResponse(0, [ApiVersion(18, 0, 4)], grpc_listener=grpc_listener), writer, 3)
    return b"".join(writer.chunks())


def tls(connection: socket.socket) -> None:
    with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(connection, server_side=True):
        raise AssertionError("there is no certificate")


def http(connection: socket.socket) -> None:
    class Pages(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    Pages(connection, ("127.0.0.1", 1), None)  # type: ignore[arg-type]


def ssh(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.7\r\n")
    connection.recv(1)


def silent(connection: socket.socket) -> None:
    while connection.recv(4_096):
        pass


def closing(connection: socket.socket) -> None:
    connection.recv(1)


def error_of(servers: str, timeout_s: float = 30.0) -> tuple[KafkaException, float]:
    """Return what a call that waits raises, and after how many seconds."""
    begin = time.monotonic()
    with AdminClient({"bootstrap.servers": servers}) as admin, pytest.raises(KafkaException) as raised:
        admin.list_topics(timeout=timeout_s)
    return raised.value, time.monotonic() - begin


def test_client_finds_grpc_through_a_kafka_listener() -> None:
    with FakeCluster() as cluster, serving(kafka(cluster.bootstrap_servers)) as address:
        cluster.create_topic("flights")
        with Producer({"bootstrap.servers": address}) as producer:
            producer.produce("flights", b"AA1")
            assert producer.flush(30) == 0
        with AdminClient({"bootstrap.servers": address}) as admin:
            assert "flights" in admin.list_topics(timeout=30).topics
        with Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["flights"])
            found = consumer.consume(1, timeout=30)
        assert [(message.error(), message.value()) for message in found] == [(None, b"AA1")]


@pytest.mark.parametrize(
    ("handler", "what"),
    [
        pytest.param(kafka(), "a Kafka server that is not Tidelog answers there", id="kafka"),
        pytest.param(kafka(version=2), "a Kafka server that is not Tidelog answers there", id="old-kafka"),
        pytest.param(tls, "a server that requires TLS (security.protocol=ssl or sasl_ssl) answers there", id="tls"),
        pytest.param(http, "an HTTP server answers there", id="http"),
        pytest.param(ssh, "a server of another protocol answers there", id="ssh"),
    ],
)
def test_server_that_is_not_tidelog_is_named_at_once(handler: Handler, what: str) -> None:
    with serving(handler) as address:
        error, seconds = error_of(address)
    assert error.code is ErrorCode._ALL_BROKERS_DOWN
    assert error.message == f"no broker answered: {address}: {what}"
    assert seconds < _AT_ONCE_S


def test_server_that_is_not_tidelog_is_passed_over_while_another_answers() -> None:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(FakeCluster())
        servers = [stack.enter_context(serving(h)) for h in (http, kafka(cluster.bootstrap_servers))]
        admin = stack.enter_context(AdminClient({"bootstrap.servers": ",".join(servers)}))
        assert admin.list_topics(timeout=10).brokers


@pytest.mark.parametrize(
    ("handler", "reason"),
    [(silent, "it does not answer"), (closing, "it closes connections without an answer")],
    ids=["silent", "closing"],
)
def test_server_that_may_be_starting_is_asked_until_the_timeout(handler: Handler, reason: str) -> None:
    with serving(handler) as address:
        error, seconds = error_of(address, 3.5)
    assert error.message == f"no broker answered: {address}: {reason}"
    assert seconds > 2


def test_refused_connection_and_unknown_name_are_the_reasons_of_the_timeout() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        error, _ = error_of(f"{address},no-such-host.invalid", 0.5)
    assert f"{address}: Connection refused" in error.message
    assert "no-such-host.invalid:9092: the name cannot be resolved" in error.message


def test_grpc_listener_that_cannot_be_reached_is_named_with_the_address_that_was_given() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        listener = f"127.0.0.1:{bound.getsockname()[1]}"
        with serving(kafka(listener)) as address:
            error, _ = error_of(address, 1.0)
    assert f"{address}: a node that serves gRPC at {listener}: " in error.message
    assert "Connection refused" in error.message


def test_server_that_comes_up_later_is_found() -> None:
    with FakeCluster() as cluster:
        answers = iter([closing, closing])
        server = kafka(cluster.bootstrap_servers)

        def start_late(connection: socket.socket) -> None:
            next(answers, server)(connection)

        with serving(start_late) as address, AdminClient({"bootstrap.servers": address}) as admin:
            assert admin.list_topics(timeout=20).brokers


def test_producer_tells_its_error_callback_at_once_that_the_server_is_not_tidelog() -> None:
    told: list[str] = []
    with serving(kafka()) as address:
        producer = Producer({"bootstrap.servers": address, "error_cb": lambda error: told.append(error.str())})
        producer.produce("flights", b"AA1")
        begin = time.monotonic()
        while not told and time.monotonic() < begin + _AT_ONCE_S:
            producer.poll(0.05)
        producer.poll(2)
        producer.purge()
        producer.flush(1)
    [text] = set(told)
    assert len(told) == 1, "the same outage is told once"
    assert text == f"no broker answered: {address}: a Kafka server that is not Tidelog answers there"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", ("localhost:9092",)),
        ("a,b:1, [::1], a:9092", ("a:9092", "b:1", "[::1]:9092")),
        ("PLAINTEXT://a:1,GRPC://b", ("a:1", "b:9092")),
        ("[fe80::1%eth0]:2,my_host-1.example", ("[fe80::1%eth0]:2", "my_host-1.example:9092")),
    ],
)
def test_addresses_without_a_port_have_kafkas(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_bootstrap_servers(text) == addresses


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("::1", r"an IPv6 address must be in brackets: \[::1\]:9092"),
        ("host:x", 'the port must be from 1 to 65535, not "x"'),
        ("host:", 'the port must be from 1 to 65535, not ""'),
        ("host:99999", 'the port must be from 1 to 65535, not "99999"'),
        ("HTTPS://host:9093", "the protocol HTTPS is not supported"),
        ("my host:9092", "must be host:port"),
        (":9092", "must be host:port"),
        (" , ", "must name a host:port"),
    ],
)
def test_addresses_that_cannot_be_are_refused_with_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(KafkaException, match=f'^INVALID_CONFIG: invalid value ".*"bootstrap.servers": {reason}'):
        parse_bootstrap_servers(text)


def test_probe_is_a_request_that_kafka_reads() -> None:
    size, frame = int.from_bytes(probe_request()[:4]), probe_request()[4:]
    header = read_request_header(frame)
    assert (header.api_key, header.version, header.client_id, size) == (18, 3, b"tidelog", len(frame))
    reader = Reader(memoryview(frame)[header.end :])
    reader.skip_tagged_fields()
    asked = decode(ApiVersionsRequest, reader, 3)
    assert (asked.client_software_name, asked.asks_grpc_listener) == ("tidelog", True)
    assert reader.remaining == 0


@pytest.mark.parametrize("length", range(9, 30))
def test_answer_that_is_cut_short_is_a_kafka_server_and_no_failure(length: int) -> None:
    frame = struct.pack(">i", 25) + b"\r\n\r\n" + api_versions("127.0.0.1:9094")
    assert read_answer(frame[:length]) == Answer(Protocol.KAFKA)
    assert read_answer(frame) == Answer(Protocol.TIDELOG, "127.0.0.1:9094")
