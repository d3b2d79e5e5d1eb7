"""Makes readers and writers of messages from their declarations: a pair per class and version, when first asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tidelog_node.kafka.protocol.fields import Kind, Message, Spec, Structure, spec_of
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

_Read: TypeAlias = Callable[[Reader], Any]
_Write: TypeAlias = Callable[[Writer, Any], None]
M = TypeVar("M", bound=Message)
_made: dict[tuple[type[Structure], int, bool], tuple[_Read, _Write]] = {}

_FIXED: dict[Kind, tuple[_Read, _Write]] = {
    Kind.BOOLEAN: (Reader.boolean, Writer.boolean),
    Kind.INT8: (Reader.int8, Writer.int8),
    Kind.INT16: (Reader.int16, Writer.int16),
    Kind.UINT16: (Reader.uint16, Writer.uint16),
    Kind.INT32: (Reader.int32, Writer.int32),
    Kind.UINT32: (Reader.uint32, Writer.uint32),
    Kind.INT64: (Reader.int64, Writer.int64),
    Kind.FLOAT64: (Reader.float64, Writer.float64),
    Kind.UUID: (Reader.uuid, Writer.uuid),
}


def decode(kind: type[M], reader: Reader, version: int) -> M:
    """Read a message's body.

    Raises:
        MalformedMessageError: the bytes are not such a message.
    """
    message: M = _struct(kind, version, is_flexible=version >= kind.FLEXIBLE)[0](reader)
    return message


def encode(message: Message, writer: Writer, version: int) -> None:
    """Write a message's body; fields that the version does not have are left out.

    Raises:
        struct.error: a number does not fit its field.
        ValueError: a field is null that cannot be in this version.
    """
    kind = type(message)
    _struct(kind, version, is_flexible=version >= kind.FLEXIBLE)[1](writer, message)


def _struct(kind: type[Structure], version: int, *, is_flexible: bool) -> tuple[_Read, _Write]:
    key = (kind, version, is_flexible)
    if key not in _made:
        _made[key] = _make_struct(kind, version, is_flexible=is_flexible)
    return _made[key]


def _make_struct(kind: type[Structure], version: int, *, is_flexible: bool) -> tuple[_Read, _Write]:
    plain: list[tuple[str, _Read, _Write]] = []
    tagged: dict[int, tuple[str, _Read, _Write, Any]] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # every Structure is a dataclass
        spec = spec_of(field)
        if not spec.since <= version <= spec.until:
            continue
        read, write = _named(kind, field.name, _field(spec, version, is_flexible=is_flexible))
        if spec.tag is not None and is_flexible and version >= spec.tagged:
            tagged[spec.tag] = (field.name, read, write, _default(field))
        else:
            plain.append((field.name, read, write))
    return _struct_reader(kind, plain, tagged, is_flexible), _struct_writer(plain, tagged, is_flexible)


def _struct_reader(
    kind: type[Structure],
    plain: list[tuple[str, _Read, _Write]],
    tagged: dict[int, tuple[str, _Read, _Write, Any]],
    is_flexible: bool,
) -> _Read:
    reads = [(name, read) for name, read, _ in plain]

    def read_plain(reader: Reader) -> Any:
        return kind(**{name: read(reader) for name, read in reads})

    def read_flexible(reader: Reader) -> Any:
        values = {name: read(reader) for name, read in reads}
        for _ in range(reader.count(reader.unsigned_varint())):
            tag, size = reader.unsigned_varint(), reader.unsigned_varint()
            begin = reader.advance(size)
            if tag in tagged:
                name, read, _, _ = tagged[tag]
                reader.position = begin
                values[name] = read(reader)
                if reader.position != begin + size:
                    raise MalformedMessageError(f"tagged field {tag} ({name}) at {begin} does not have {size} bytes")
        return kind(**values)

    return read_flexible if is_flexible else read_plain


def _struct_writer(
    plain: list[tuple[str, _Read, _Write]], tagged: dict[int, tuple[str, _Read, _Write, Any]], is_flexible: bool
) -> _Write:
    writes = [(name, write) for name, _, write in plain]
    in_order = sorted(tagged.items())

    def write_plain(writer: Writer, value: Any) -> None:
        for name, write in writes:
            write(writer, getattr(value, name))

    def write_flexible(writer: Writer, value: Any) -> None:
        for name, write in writes:
            write(writer, getattr(value, name))
        present = [(tag, getattr(value, n), write) for tag, (n, _, write, d) in in_order if getattr(value, n) != d]
        writer.unsigned_varint(len(present))
        for tag, content, write in present:
            inner = Writer()
            write(inner, content)
            writer.unsigned_varint(tag)
            chunks = inner.chunks()
            writer.unsigned_varint(sum(map(len, chunks)))
            for chunk in chunks:
                writer.blob(chunk)

    return write_flexible if is_flexible else write_plain


def _field(spec: Spec, version: int, *, is_flexible: bool) -> tuple[_Read, _Write]:
    is_nullable = spec.nullable is not None and version >= spec.nullable
    if spec.is_array:
        element = _value(spec.kind, version, is_flexible=is_flexible, is_nullable=False)
        return _array(*element, is_flexible=is_flexible, is_nullable=is_nullable)
    return _value(spec.kind, version, is_flexible=is_flexible, is_nullable=is_nullable)


def _value(kind: Kind | type[Structure], version: int, *, is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    if not isinstance(kind, Kind):
        read, write = _struct(kind, version, is_flexible=is_flexible)
        return _nullable_struct(read, write) if is_nullable else (read, write)
    if kind is Kind.STRING:
        return _string(is_flexible=is_flexible, is_nullable=is_nullable)
    if kind is Kind.BYTES:
        return _bytes(is_flexible=is_flexible, is_nullable=is_nullable)
    return _FIXED[kind]


def _nullable_struct(read: _Read, write: _Write) -> tuple[_Read, _Write]:
    def read_nullable(reader: Reader) -> Any:
        return None if reader.int8() < 0 else read(reader)

    def write_nullable(writer: Writer, value: Any) -> None:
        writer.int8(-1 if value is None else 1)
        if value is not None:
            write(writer, value)

    return read_nullable, write_nullable


def _lengths(is_flexible: bool, is_nullable: bool, plain: tuple[_Read, _Write]) -> tuple[_Read, _Write]:
    """Return how a length is read, None for null, and written."""
    read_plain, write_plain = plain

    def read(reader: Reader) -> int | None:
        length = reader.unsigned_varint() - 1 if is_flexible else read_plain(reader)
        if length >= 0:
            return int(length)
        if is_nullable and length == -1:
            return None
        raise MalformedMessageError(f"the length before {reader.position} is {length}")

    def write(writer: Writer, length: int | None) -> None:
        if length is None and not is_nullable:
            raise ValueError("null where the version has no null")
        if is_flexible:
            writer.unsigned_varint(0 if length is None else length + 1)
        else:
            write_plain(writer, -1 if length is None else length)

    return read, write


def _string(*, is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    read_length, write_length = _lengths(is_flexible, is_nullable, (Reader.int16, Writer.int16))

    def read(reader: Reader) -> str | None:
        length = read_length(reader)
        return None if length is None else reader.text(length)

    def write(writer: Writer, value: str | None) -> None:
        encoded = None if value is None else value.encode()
        write_length(writer, None if encoded is None else len(encoded))
        writer.buffer += encoded or b""

    return read, write


def _bytes(*, is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    read_length, write_length = _lengths(is_flexible, is_nullable, (Reader.int32, Writer.int32))

    def read(reader: Reader) -> memoryview | None:
        length = read_length(reader)
        return None if length is None else reader.blob(length)

    def write(writer: Writer, value: bytes | None) -> None:
        write_length(writer, None if value is None else len(value))
        if value:
            writer.blob(value)

    return read, write


def _array(read_one: _Read, write_one: _Write, *, is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    read_length, write_length = _lengths(is_flexible, is_nullable, (Reader.int32, Writer.int32))

    def read(reader: Reader) -> list[Any] | None:
        length = read_length(reader)
        return None if length is None else [read_one(reader) for _ in range(reader.count(length))]

    def write(writer: Writer, values: list[Any] | None) -> None:
        write_length(writer, None if values is None else len(values))
        for value in values or ():
            write_one(writer, value)

    return read, write


def _named(kind: type[Structure], name: str, functions: tuple[_Read, _Write]) -> tuple[_Read, _Write]:
    """Have errors of a field's writer say which field it was."""
    read, write = functions

    def write_named(writer: Writer, value: Any) -> None:
        try:
            write(writer, value)
        except ValueError as error:
            raise ValueError(f"{kind.__name__}.{name}: {error}") from error

    return read, write_named


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
