"""The client's side of Produce: requests of versions 9 to 11, whose topics have names, and their responses.

Records are written as parts, so that a batch with a new header needs no copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from tidelog_node.kafka.protocol.primitives import read_count, read_string, skip_tags, write_string
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Buffer, Writer

VERSIONS: Final = (9, 11)
ALL_REPLICAS: Final = -1
_HEAD = Struct(">hi")
_INDEX = Struct(">i")
_RESULT = Struct(">ihqqq")
_NO_ERRORS: Final = b"\x01\x00\x00"
"""The end of a partition's answer without errors of records, a message or tags, as nearly all are."""


class ProduceResult(NamedTuple):
    """The answer for one partition."""

    error_code: int
    base_offset: int
    error_message: str | None


def encode_request(
    writer: Writer,
    transactional_id: str | None,
    timeout_ms: int,
    topics: Mapping[str, Mapping[int, Sequence[Buffer]]],
) -> None:
    """Write a request's body. ``topics`` has the parts of one batch for each partition; all replicas acknowledge."""
    write_string(writer, transactional_id, is_flexible=True)
    writer.buffer += _HEAD.pack(ALL_REPLICAS, timeout_ms)
    writer.unsigned_varint(len(topics) + 1)
    for name, partitions in topics.items():
        write_string(writer, name, is_flexible=True)
        writer.unsigned_varint(len(partitions) + 1)
        for index, parts in partitions.items():
            writer.buffer += _INDEX.pack(index)
            writer.unsigned_varint(sum(map(len, parts)) + 1)
            for part in parts:
                writer.blob(part)
            writer.buffer.append(0)
        writer.buffer.append(0)
    writer.buffer.append(0)


def decode_response(reader: Reader) -> dict[tuple[str, int], ProduceResult]:
    """Read a response's body.

    Raises:
        MalformedMessageError: The bytes are not such a response.
    """
    results = {}
    for _ in range(read_count(reader, is_flexible=True)):
        name = read_string(reader, is_flexible=True)
        if name is None:
            raise MalformedMessageError("a topic without a name")
        for _ in range(read_count(reader, is_flexible=True)):
            start = reader.advance(_RESULT.size)
            index, code, base_offset, _, _ = _RESULT.unpack_from(reader.view, start)
            end = start + _RESULT.size
            if reader.view[end : end + len(_NO_ERRORS)].tobytes() == _NO_ERRORS:
                reader.advance(len(_NO_ERRORS))
                results[name, index] = ProduceResult(code, base_offset, None)
                continue
            for _ in range(read_count(reader, is_flexible=True)):
                reader.int32()
                read_string(reader, is_flexible=True)
                skip_tags(reader)
            results[name, index] = ProduceResult(code, base_offset, read_string(reader, is_flexible=True))
            skip_tags(reader)
        skip_tags(reader)
    reader.int32()
    skip_tags(reader)
    return results
