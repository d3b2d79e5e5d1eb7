"""The headers of requests and responses.

A request header has version 1, or version 2 with tagged fields in an API's flexible versions (KIP-482). Version 0,
without a client id, is used by ControlledShutdown alone, which is not served. A response header has version 0 or, in
flexible versions, 1. For ApiVersions it is always 0, so that a client can read it even if the node does not know the
requested version (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

_FIXED: Final = Struct(">hhih")
_REQUEST: Final = Struct(">ihhih")
_RESPONSE: Final = Struct(">ii")
_NO_TAGS: Final = b"\0"
LEAST_REQUEST_BYTES: Final = _FIXED.size
"""The size of a request without a client id or a body."""


class RequestHeader(NamedTuple):
    """The header of a request without its tagged fields. ``client_id`` is None if the client has none."""

    api_key: int
    version: int
    correlation_id: int
    client_id: bytes | None
    end: int
    """The start of the body, or in flexible versions of the tagged fields: see :meth:`Reader.skip_tagged_fields`."""


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """Read the header of a request. No text is decoded.

    Raises:
        MalformedMessageError: The frame is too short, or the length of the client id is invalid.
    """
    size = len(frame)
    if size < _FIXED.size:
        raise MalformedMessageError(f"a request has {size} bytes, its header alone has {_FIXED.size} at least")
    api_key, version, correlation_id, length = _FIXED.unpack_from(frame)
    if length <= 0:
        if length < -1:
            raise MalformedMessageError(f"invalid length {length} of the client id")
        return RequestHeader(api_key, version, correlation_id, None if length else b"", _FIXED.size)
    end = _FIXED.size + length
    if end > size:
        raise MalformedMessageError(f"the client id has {length} bytes, {size - _FIXED.size} remain")
    return RequestHeader(api_key, version, correlation_id, bytes(frame[_FIXED.size : end]), end)


def response_head(size: int, correlation_id: int, *, has_tags: bool) -> bytes:
    """Return the frame length and header of a response whose body has ``size`` bytes."""
    if has_tags:
        return _RESPONSE.pack(size + 5, correlation_id) + _NO_TAGS
    return _RESPONSE.pack(size + 4, correlation_id)


def response_has_tags(api_key: int, *, is_flexible: bool) -> bool:
    """Return whether the header of a response has version 1, with tagged fields, and not version 0."""
    return is_flexible and api_key != ApiKey.API_VERSIONS


def request_head(
    size: int, api_key: int, version: int, correlation_id: int, client_id: bytes, *, is_flexible: bool
) -> bytes:
    """Return the frame length and header of a request whose body has ``size`` bytes."""
    tags = _NO_TAGS if is_flexible else b""
    length = _FIXED.size + len(client_id) + len(tags) + size
    return _REQUEST.pack(length, api_key, version, correlation_id, len(client_id)) + client_id + tags


def write_request_header(
    writer: Writer, api_key: int, version: int, correlation_id: int, client_id: str, *, is_flexible: bool
) -> None:
    """Write a request's header without the frame's length."""
    encoded = client_id.encode()
    writer.buffer += _FIXED.pack(api_key, version, correlation_id, len(encoded)) + encoded
    if is_flexible:
        writer.buffer += _NO_TAGS


def read_response_header(reader: Reader, *, has_tags: bool) -> int:
    """Read a response's header without the frame's length, and return the correlation id.

    Raises:
        MalformedMessageError: The bytes end too soon or are invalid.
    """
    correlation_id = reader.int32()
    if has_tags:
        reader.skip_tagged_fields()
    return correlation_id
