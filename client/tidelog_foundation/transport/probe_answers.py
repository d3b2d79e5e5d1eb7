"""The bytes of a probe, and the protocol detection from a server's answer. Pure.

The probe is Kafka's ApiVersions request with a tagged field, to which a Tidelog node answers with its gRPC address
(``docs/decisions``). Servers of other protocols have their own answers: gRPC sends its settings, TLS an alert, HTTP the
page of a bad request.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Final

from tidelog_foundation.dataclass import dataclass

_CORRELATION: Final = b"\r\n\r\n"
"""Any number works. This one ends a line, so that servers that read lines, such as HTTP's, answer too."""
_CLIENT: Final = b"tidelog"
_GRPC_LISTENER_TAG: Final = 10_000
_SIZE: Final = Struct(">i")
_HTTP2_SETTINGS: Final = 4
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""An alert and a handshake, of any version."""
_MOST_SHIFT: Final = 28
_HTML: Final = (b"<!doctype html", b"<html")


class Protocol(enum.Enum):
    """The protocol of a server; the value completes "... answers there"."""

    GRPC = "gRPC"
    KAFKA = "a Kafka server that is not Tidelog"
    TIDELOG = "a Kafka listener of Tidelog"
    TLS = "a server that requires TLS (security.protocol=ssl or sasl_ssl)"
    HTTP = "an HTTP server"
    UNKNOWN = "a server of another protocol"


@dataclass(frozen=True, slots=True)
class Answer:
    """The protocol of a server; ``grpc_listener`` is a Tidelog node's gRPC address, empty while the node cannot tell
    it.
    """

    protocol: Protocol
    grpc_listener: str = ""


def probe_request() -> bytes:
    """Return the request: ApiVersions in version 3, in one frame."""
    header = b"\x00\x12\x00\x03" + _CORRELATION + len(_CLIENT).to_bytes(2) + _CLIENT + b"\x00"
    software = bytes([len(_CLIENT) + 1]) + _CLIENT + b"\x021"
    tags = b"\x01" + _unsigned_varint(_GRPC_LISTENER_TAG) + b"\x01\x01"
    return _SIZE.pack(len(header + software + tags)) + header + software + tags


def is_whole(received: bytes) -> bool:
    """Return True if the bytes suffice: a whole Kafka frame, or the beginning of another answer."""
    if received[4:8] != _CORRELATION[: len(received[4:8])]:
        return len(received) >= len(_HTML[0])
    return len(received) >= _SIZE.size and len(received) >= _SIZE.size + _SIZE.unpack_from(received)[0]


def read_answer(received: bytes) -> Answer:
    """Return the protocol that the first bytes of a server's answer reveal; ``received`` is not empty."""
    if received[4:8] == _CORRELATION:
        return _kafka(received)
    if received[:2] in _TLS_RECORDS:
        return Answer(Protocol.TLS)
    start = received.lstrip().lower()
    if start.startswith((b"http/", *_HTML)):
        return Answer(Protocol.HTTP)
    is_http2 = len(received) >= 9 and received[3] == _HTTP2_SETTINGS and received[5:9] == bytes(4)
    return Answer(Protocol.GRPC if is_http2 else Protocol.UNKNOWN)


def _kafka(received: bytes) -> Answer:
    """Return the answer of a Kafka server. One that lacks the version answers in version 0; one that lacks the tag
    omits it.
    """
    try:
        listener = _grpc_listener(received)
    except (IndexError, ValueError):
        return Answer(Protocol.KAFKA)
    return Answer(Protocol.KAFKA) if listener is None else Answer(Protocol.TIDELOG, listener)


def _grpc_listener(received: bytes) -> str | None:
    """Return the tagged field after the response's APIs, or None if it is missing."""
    if received[8:10] != b"\x00\x00":
        return None
    count, position = _read_varint(received, 10)
    for _ in range(count - 1):
        _, position = _skip_tags(received, position + 6)
    tags, _ = _skip_tags(received, position + 4)
    field = tags.get(_GRPC_LISTENER_TAG)
    if field is None:
        return None
    length, begin = _read_varint(field, 0)
    return field[begin : begin + length - 1].decode()


def _skip_tags(data: bytes, position: int) -> tuple[dict[int, bytes], int]:
    tags = {}
    count, position = _read_varint(data, position)
    for _ in range(count):
        tag, position = _read_varint(data, position)
        size, position = _read_varint(data, position)
        if position + size > len(data):
            raise ValueError(f"tagged field {tag} at {position} has {size} bytes, of which {len(data) - position} came")
        tags[tag] = data[position : position + size]
        position += size
    return tags, position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > _MOST_SHIFT:
            raise ValueError(f"the number at {position} has more than five bytes")


def _unsigned_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
