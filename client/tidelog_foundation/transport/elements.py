"""A count of a serialized message's elements before parsing, because each becomes an object much larger than its bytes.

An element is one value of a repeated field, at any depth. Empty submessages take two bytes on the wire and some fifty
times as much in memory, even before a handler runs.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import cache
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

MAX_ELEMENTS: Final = 100_000
"""The most elements in all repeated fields of one request together; Kafka's listener has the same limit."""
UNCOUNTED_BYTES: Final = 4_096
"""The size up to which messages need no count."""
_FIELDS_PER_STEP: Final = 2_000
_FIELDS_PER_ELEMENT: Final = 20
"""The most fields per allowed element; no valid message has more."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_Fields: TypeAlias = dict[int, tuple[bool, "Descriptor | None", bool]]
"""By number: is the field repeated, its message type if it must be searched, and does it hold numbers."""


def check_elements(raw: bytes, kind: Descriptor, limit: int = MAX_ELEMENTS) -> Generator[None, None, None]:
    """Reject a message with more than ``limit`` elements; a step of the generator takes a few milliseconds.

    Raises:
        TidelogError: INVALID_REQUEST, also for bytes that are certainly not such a message.
    """
    counted = 0
    stack = [(0, len(raw), kind)]
    steps = 0
    try:
        while stack:
            position, end, descriptor = stack.pop()
            fields = _fields_of(descriptor)
            while position < end:
                steps += 1
                if steps % _FIELDS_PER_STEP == 0:
                    yield
                tag, position = _varint(raw, position)
                is_repeated, message, is_number = fields.get(tag >> 3, (False, None, False))
                wire_type = tag & 7
                counted += is_repeated
                if wire_type == _BYTES:
                    size, position = _varint(raw, position)
                    if is_repeated and is_number:
                        # Packed numbers: each takes at least a byte.
                        counted += size
                    elif message is not None and size:
                        stack.append((position, min(position + size, end), message))
                    position += size
                else:
                    position = _skip(raw, position, wire_type)
                if counted > limit or steps > limit * _FIELDS_PER_ELEMENT:
                    raise too_many_elements(kind.name, limit)
    except IndexError:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{len(raw)} bytes are not a valid {kind.name}") from None


def too_many_elements(name: str, limit: int = MAX_ELEMENTS) -> TidelogError:
    """Return the error of a request with more elements than the limit."""
    text = f"a {name} with more than {limit} elements at all depths is too large: split it into several requests"
    return error_for(ErrorCode.INVALID_REQUEST, text)


@cache
def _fields_of(kind: Descriptor) -> _Fields:
    return {
        field.number: (field.is_repeated, _looked_into(field), field.type not in _OF_BYTES) for field in kind.fields
    }


_OF_BYTES = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def _looked_into(field: FieldDescriptor) -> Descriptor | None:
    if field.type == FieldDescriptor.TYPE_MESSAGE and _has_repeated(field.message_type):
        return field.message_type
    return None


@cache
def _has_repeated(kind: Descriptor) -> bool:
    return any(
        field.is_repeated or (field.type == FieldDescriptor.TYPE_MESSAGE and _has_repeated(field.message_type))
        for field in kind.fields
    )


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    byte = raw[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = raw[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
        if shift > 63:
            raise IndexError


def _skip(raw: bytes, position: int, wire_type: int) -> int:
    if wire_type == _VARINT:
        return _varint(raw, position)[1]
    if wire_type == _FIXED64:
        return position + 8
    if wire_type == _FIXED32:
        return position + 4
    # A group, which no message here has, though a parser would read it.
    raise IndexError
