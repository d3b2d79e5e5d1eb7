"""The headers before requests and responses.

A request's is of version 1, or 2 in an API's flexible versions, which adds tagged fields (KIP-482); version 0, without
a client id, belongs to ControlledShutdown alone, which is not served. A response's is of version 0, or 1 likewise; but
of ApiVersions always 0, so that a client can read it that asked in a version which the node does not know (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

_FIXED: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")
_NO_TAGS: Final = b"\0"
LEAST_REQUEST_BYTES: Final = _FIXED.size
"""The size of a request without a client id or a body."""


class RequestHeader(NamedTuple):
    """What stands before a request, its tagged fields apart. ``client_id`` is None where the client has none."""

    api_key: int
    version: int
    correlation_id: int
    client_id: bytes | None
    end: int
    """Where the body begins, or in flexible versions the tagged fields: see :meth:`Reader.skip_tagged_fields`."""


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """Read the header of a request; no text is decoded.

    Raises:
        MalformedMessageError: the frame is too short, or the client id's length is none.
    """
    size = len(frame)
    if size < _FIXED.size:
        raise MalformedMessageError(f"a request has {size} bytes, its header alone has {_FIXED.size} at least")
    api_key, version, correlation_id, length = _FIXED.unpack_from(frame)
    if length <= 0:
        if length < -1:
            raise MalformedMessageError(f"the length of the client id is {length}")
        return RequestHeader(api_key, version, correlation_id, None if length else b"", _FIXED.size)
    end = _FIXED.size + length
    if end > size:
        raise MalformedMessageError(f"a client id of {length} bytes is announced, {size - _FIXED.size} remain")
    return RequestHeader(api_key, version, correlation_id, bytes(frame[_FIXED.size : end]), end)


def response_head(size: int, correlation_id: int, *, has_tags: bool) -> bytes:
    """Return what stands before a response's body of ``size`` bytes, the frame's length included."""
    if has_tags:
        return _RESPONSE.pack(size + 5, correlation_id) + _NO_TAGS
    return _RESPONSE.pack(size + 4, correlation_id)


def response_has_tags(api_key: int, *, is_flexible: bool) -> bool:
    """Return whether the header of a response has tagged fields: it is of version 1 then, otherwise of version 0."""
    return is_flexible and api_key != ApiKey.API_VERSIONS


def write_request_header(
    writer: Writer, api_key: int, version: int, correlation_id: int, client_id: str, *, is_flexible: bool
) -> None:
    """Write what stands before a request's body, without the frame's length."""
    encoded = client_id.encode()
    writer.buffer += _FIXED.pack(api_key, version, correlation_id, len(encoded)) + encoded
    if is_flexible:
        writer.buffer += _NO_TAGS


def read_response_header(reader: Reader, *, has_tags: bool) -> int:
    """Read what stands before a response's body, without the frame's length; return the correlation id.

    Raises:
        MalformedMessageError: the bytes end too soon or cannot be.
    """
    correlation_id = reader.int32()
    if has_tags:
        reader.skip_tagged_fields()
    return correlation_id
