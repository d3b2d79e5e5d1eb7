"""The common parts of Fetch requests and responses: topics, lengths, tagged fields."""

from __future__ import annotations

from typing import Final

from tidelog_node.fetching import TopicRef
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

VERSIONS: Final = (4, 18)
FLEXIBLE: Final = 12
WITH_LOG_START: Final = 5
WITH_SESSIONS: Final = 7
WITH_LEADER_EPOCH: Final = 9
WITH_RACK: Final = 11
WITH_TOPIC_IDS: Final = 13
WITH_REPLICA_STATE: Final = 15
WITH_ENDPOINTS: Final = 16


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


def read_topic(reader: Reader, version: int) -> TopicRef:
    """Read a topic's name, or from version 13 on its id."""
    if version >= WITH_TOPIC_IDS:
        return reader.uuid()
    name = read_string(reader, is_flexible=version >= FLEXIBLE)
    if name is None:
        raise MalformedMessageError(f"the topic before {reader.position} has no name")
    return name


def write_topic(writer: Writer, topic: TopicRef, version: int) -> None:
    """Write a topic's name or id, depending on the version."""
    if isinstance(topic, bytes):
        assert version >= WITH_TOPIC_IDS, "this version identifies topics by name"
        writer.uuid(topic)
    else:
        assert version < WITH_TOPIC_IDS, "this version identifies topics by id"
        write_string(writer, topic, is_flexible=version >= FLEXIBLE)
