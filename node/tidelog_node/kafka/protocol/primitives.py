"""Counts, strings, tagged fields and leaders' addresses, for the messages that are encoded by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

_ENDPOINTS_TAG: Final = 0


class NodeEndpoint(NamedTuple):
    """The address of a leader that a response names (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Tags:
    """The tagged fields of a struct, added in ascending order of their numbers."""

    __slots__ = ("_body", "_count")

    def __init__(self) -> None:
        self._count = 0
        self._body = Writer()

    def add(self, tag: int, content: bytes | bytearray) -> None:
        """Add a field."""
        self._count += 1
        self._body.unsigned_varint(tag)
        self._body.unsigned_varint(len(content))
        self._body.buffer += content

    def write(self, writer: Writer) -> None:
        """Write all fields."""
        writer.unsigned_varint(self._count)
        writer.buffer += self._body.buffer


def skip_tags(reader: Reader) -> None:
    """Skip the tagged fields of a struct, with a fast path for none."""
    position = reader.position
    if position < reader.end and not reader.view[position]:
        reader.position = position + 1
    else:
        reader.skip_tagged_fields()


def read_count(reader: Reader, *, is_flexible: bool) -> int:
    """Read the number of elements of an array.

    Raises:
        MalformedMessageError: The array is null, which differs from empty, or announces more elements than possible.
    """
    count = reader.unsigned_varint() - 1 if is_flexible else reader.int32()
    if count < 0:
        raise MalformedMessageError(f"invalid array length {count} before byte {reader.position}")
    return reader.count(count)


def write_count(writer: Writer, count: int, *, is_flexible: bool) -> None:
    """Write the number of elements of an array."""
    if is_flexible:
        writer.unsigned_varint(count + 1)
    else:
        writer.int32(count)


def read_string(reader: Reader, *, is_flexible: bool) -> str | None:
    """Read a nullable string."""
    length = reader.unsigned_varint() - 1 if is_flexible else reader.int16()
    if length < -1:
        raise MalformedMessageError(f"invalid string length {length} before byte {reader.position}")
    return None if length < 0 else reader.text(length)


def write_string(writer: Writer, value: str | None, *, is_flexible: bool) -> None:
    """Write a nullable string."""
    encoded = b"" if value is None else value.encode()
    length = -1 if value is None else len(encoded)
    if is_flexible:
        writer.unsigned_varint(length + 1)
    else:
        writer.int16(length)
    writer.buffer += encoded


def write_endpoints(writer: Writer, endpoints: Sequence[NodeEndpoint]) -> None:
    """Write the tagged fields of a response: the addresses of the named leaders, if there are any."""
    tags = Tags()
    if endpoints:
        field = Writer()
        write_count(field, len(endpoints), is_flexible=True)
        for endpoint in endpoints:
            field.int32(endpoint.node_id)
            write_string(field, endpoint.host, is_flexible=True)
            field.int32(endpoint.port)
            write_string(field, endpoint.rack, is_flexible=True)
            field.buffer.append(0)
        tags.add(_ENDPOINTS_TAG, field.buffer)
    tags.write(writer)
