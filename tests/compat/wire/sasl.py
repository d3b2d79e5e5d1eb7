"""Sequences of frames from clients that are not authenticated yet, or again, and what each broker answers to them.

Each sequence has a connection of its own. The answers are compared byte by byte, except the APIs in ApiVersions.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sasl_clients import authenticate, handshake, plain, prefixed

from tidelog_node.kafka.protocol.api_keys import ApiKey

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS: Final = {
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.server.max.receive.size": "1000",
    "listener.name.plaintext.plain.connections.max.reauth.ms": "3600000",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required username=node password=node-secret "
    "user_node=node-secret user_alice=wonderland user_bob=builder;",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
}
"""The settings of both brokers, in addition to the protocol of the listener."""
CLOSED: Final = "closed"
SILENT: Final = "silent"
_SILENT_S: Final = 1.0

_SCRAM_FIRST: Final = b"n,,n=alice,r=abcdefghij"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Frames, or raw bytes, that a client sends one after the other."""

    name: str
    sent: Sequence[bytes]

    def answers(self, host: str, port: int) -> list[str]:
        """Return the answer to each frame: hexadecimal digits, or :data:`CLOSED` or :data:`SILENT`, which ends it."""
        return list(_answers(host, port, self.sent))


def _versions(version: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhihs", ApiKey.API_VERSIONS, version, 7, 1, b"c")
    return head + (b"\0" + body + b"\0" if version >= 3 else b"")


def _software(name: bytes) -> bytes:
    return bytes([len(name) + 1]) + name + bytes([2]) + b"1"


def _case(name: str, *frames: bytes) -> Exchange:
    return Exchange(name, [prefixed(frame) for frame in frames])


_METADATA: Final = struct.pack(">hhihs", ApiKey.METADATA, 1, 8, 1, b"c") + bytes(4)
SEQUENCES: Final = (
    *(_case(f"login with SaslAuthenticate {v}", handshake(), plain(version=v)) for v in (0, 1, 2)),
    _case("login after SaslHandshake 0", handshake(version=0), b"\0alice\0wonderland"),
    _case("wrong password after SaslHandshake 0", handshake(version=0), b"\0alice\0wrong"),
    _case("wrong password", handshake(), plain(password="wrong")),
    _case("wrong password with SaslAuthenticate 0", handshake(), plain(password="wrong", version=0)),
    _case("unknown user", handshake(), plain("carol")),
    _case("another authorization id", handshake(), authenticate(b"bob\0alice\0wonderland")),
    _case("own authorization id", handshake(), authenticate(b"alice\0alice\0wonderland")),
    *(
        _case(f"token {token!r}", handshake(), authenticate(token))
        for token in (b"", b"alice", b"\0alice", b"\0\0x", b"\0alice\0", b"\0alice\0wonderland\0x")
    ),
    _case("unknown mechanism", handshake("CRAM-MD5")),
    _case("unknown mechanism with SaslHandshake 0", handshake("CRAM-MD5", version=0)),
    _case("mechanism in lower case", handshake("plain")),
    *(_case(f"ApiVersions {v}", _versions(v, _software(b"c"))) for v in (0, 1, 2, 3, 4)),
    _case("ApiVersions, then login", _versions(0), handshake(), plain()),
    _case("ApiVersions twice", _versions(0), _versions(0)),
    _case("ApiVersions 99, then 0, then login", _versions(99), _versions(0), handshake(), plain()),
    _case("ApiVersions of invalid software, then 0", _versions(3, _software(b"-")), _versions(0), handshake()),
    _case("SaslHandshake 2", handshake(version=2)),
    _case("SaslAuthenticate first", plain()),
    _case("Metadata first", _METADATA),
    _case("Metadata after ApiVersions", _versions(0), _METADATA),
    _case("GSSAPI token first", b"\x60\x82\x02\x9e\x06\x09*\x86H\x86\xf7\x12"),
    _case("empty frame first", b""),
    _case("SaslHandshake twice", handshake(), handshake()),
    _case("ApiVersions after SaslHandshake", handshake(), _versions(0)),
    _case("Metadata after SaslHandshake", handshake(), _METADATA),
    _case("SaslAuthenticate 3", handshake(), authenticate(b"x", version=3)),
    Exchange("frame beyond the limit", [struct.pack(">i", 1_001) + bytes(1_001)]),
    Exchange("negative size", [struct.pack(">i", -1)]),
    Exchange("TLS hello", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]),
    Exchange("HTTP request", [b"GET / HTTP/1.1\r\n\r\n"]),
    _case("SCRAM with a malformed message", handshake("SCRAM-SHA-256"), authenticate(b"n,,")),
    _case("SCRAM of an unknown user", handshake("SCRAM-SHA-256"), authenticate(_SCRAM_FIRST)),
    _case("again", handshake(), plain(), handshake(), plain()),
    _case("again after SaslHandshake 0", handshake(version=0), b"\0alice\0wonderland", handshake(), plain()),
    _case("again too soon", handshake(), plain(), handshake(), plain(), handshake(), plain()),
    _case("again with a wrong password", handshake(), plain(), handshake(), plain(password="wrong")),
    _case("again as another user", handshake(), plain(), handshake(), plain("bob", "builder")),
    _case("again with another mechanism", handshake(), plain(), handshake("SCRAM-SHA-256"), authenticate(b"x")),
    _case("again with an unknown mechanism", handshake(), plain(), handshake("CRAM-MD5")),
    _case("SaslAuthenticate after the login", handshake(), plain(), plain()),
    _case("ApiVersions after the login", handshake(), plain(), _versions(0)),
    _case("ApiVersions after another SaslHandshake", handshake(), plain(), handshake(), _versions(0)),
)
KNOWN: Final = {
    "Metadata after SaslHandshake": "Kafka parses any request here to answer it with ILLEGAL_SASL_STATE. Tidelog "
    "parses only those of SASL and ApiVersions before the authentication, and closes the connection",
    "SCRAM of an unknown user": "Kafka refuses an unknown user at once; Tidelog asks for a proof, as of a known user",
    "again with an unknown mechanism": "Kafka closes without an answer; Tidelog answers as before the login",
}
"""The sequences whose answers differ, with the reason."""


def _answers(host: str, port: int, sent: Sequence[bytes]) -> Iterator[str]:
    with socket.create_connection((host, port), _SILENT_S * 10) as connection:
        for data in sent:
            is_versions = data[4:6] == struct.pack(">h", ApiKey.API_VERSIONS)
            connection.settimeout(_SILENT_S)
            try:
                connection.sendall(data)
                answer = _receive(connection)
            except TimeoutError:
                yield SILENT
                return
            except (ConnectionError, EOFError):
                yield CLOSED
                return
            yield _normal(answer[:6] if is_versions else answer)
        yield from _end(connection)


def _end(connection: socket.socket) -> Iterator[str]:
    """Yield CLOSED if the broker closes the connection after its last answer."""
    try:
        if not connection.recv(1):
            yield CLOSED
    except TimeoutError:
        pass
    except ConnectionError:
        yield CLOSED


def _normal(answer: bytes) -> str:
    """Return the answer in hexadecimal. Kafka lists the mechanisms in the order of their hashes."""
    names = [struct.pack(">h", len(name)) + name for name in (b"PLAIN", b"SCRAM-SHA-256")]
    return answer.replace(names[1] + names[0], names[0] + names[1]).hex()


def _receive(connection: socket.socket) -> bytes:
    [size] = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
