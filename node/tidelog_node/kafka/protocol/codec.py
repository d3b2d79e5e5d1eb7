"""Readers and writers of messages, generated from their declarations on first use per class and version.

Each exists in two forms: one that processes the message at once, and one that pauses after every few array elements, so
that the event loop can run other tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias, TypeVar

from tidelog_node.kafka.protocol.fields import Kind, Message, Spec, Structure, spec_of
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

_Read: TypeAlias = Callable[[Reader], Any]
_Write: TypeAlias = Callable[[Writer, Any], None]
_Steps: TypeAlias = Generator[None, None, Any]
_StepRead: TypeAlias = Callable[[Reader], _Steps]
_StepWrite: TypeAlias = Callable[[Writer, Any], _Steps]
_Plain: TypeAlias = list[tuple[str, _Read, _Write]]
_Tagged: TypeAlias = dict[int, tuple[str, _Read, _Write, Any]]
"""By tag in ascending order, with their defaults."""
M = TypeVar("M", bound=Message)
_made: dict[tuple[type[Structure], int, bool], tuple[_Read, _Write]] = {}
_made_in_steps: dict[tuple[type[Structure], int, bool], tuple[_StepRead, _StepWrite]] = {}
_ELEMENTS_PER_STEP: Final = 32

_FIXED: dict[Kind, tuple[_Read, _Write]] = {
    Kind.BOOLEAN: (Reader.boolean, Writer.boolean),
    Kind.INT8: (Reader.int8, Writer.int8),
    Kind.INT16: (Reader.int16, Writer.int16),
    Kind.UINT16: (Reader.uint16, Writer.uint16),
    Kind.INT32: (Reader.int32, Writer.int32),
    Kind.INT64: (Reader.int64, Writer.int64),
    Kind.FLOAT64: (Reader.float64, Writer.float64),
    Kind.UUID: (Reader.uuid, Writer.uuid),
}


def decode(kind: type[M], reader: Reader, version: int) -> M:
    """Read a message's body.

    Raises:
        MalformedMessageError: The bytes are not such a message.
    """
    message: M = _struct(kind, version, is_flexible=version >= kind.FLEXIBLE)[0](reader)
    return message


def encode(message: Message, writer: Writer, version: int) -> None:
    """Write a message's body without the fields that the version does not have.

    Raises:
        struct.error: A number does not fit its field.
        ValueError: A field is null that cannot be null in this version.
    """
    kind = type(message)
    _struct(kind, version, is_flexible=version >= kind.FLEXIBLE)[1](writer, message)


def decode_in_steps(kind: type[M], reader: Reader, version: int) -> Generator[None, None, M]:
    """Read a message's body like :func:`decode`, in steps of about 0.1 ms."""
    message: M = yield from _struct_in_steps(kind, version, is_flexible=version >= kind.FLEXIBLE)[0](reader)
    return message


def encode_in_steps(message: Message, writer: Writer, version: int) -> Generator[None, None, None]:
    """Write a message's body like :func:`encode`, in steps of about 0.1 ms. The message must not change meanwhile."""
    kind = type(message)
    yield from _struct_in_steps(kind, version, is_flexible=version >= kind.FLEXIBLE)[1](writer, message)


def _struct(kind: type[Structure], version: int, *, is_flexible: bool) -> tuple[_Read, _Write]:
    key = (kind, version, is_flexible)
    if key not in _made:
        plain, tagged = _fields(kind, version, is_flexible=is_flexible)
        _made[key] = _struct_reader(kind, plain, tagged, is_flexible), _struct_writer(plain, tagged, is_flexible)
    return _made[key]


def _fields(kind: type[Structure], version: int, *, is_flexible: bool) -> tuple[_Plain, _Tagged]:
    plain: _Plain = []
    tagged: _Tagged = {}
    for field in dataclasses.fields(kind):
        spec = spec_of(field)
        if not spec.since <= version <= spec.until:
            continue
        read, write = _named(kind, field.name, _field(spec, version, is_flexible=is_flexible))
        if spec.tag is not None and is_flexible and version >= spec.tagged:
            tagged[spec.tag] = (field.name, read, write, _default(field))
        else:
            plain.append((field.name, read, write))
    return plain, dict(sorted(tagged.items()))


def _struct_reader(kind: type[Structure], plain: _Plain, tagged: _Tagged, is_flexible: bool) -> _Read:
    reads = [(name, read) for name, read, _ in plain]

    def read_plain(reader: Reader) -> Any:
        return kind(**{name: read(reader) for name, read in reads})

    def read_flexible(reader: Reader) -> Any:
        values = {name: read(reader) for name, read in reads}
        _read_tagged(reader, tagged, values)
        return kind(**values)

    return read_flexible if is_flexible else read_plain


def _read_tagged(reader: Reader, tagged: _Tagged, values: dict[str, Any]) -> None:
    for _ in range(reader.count(reader.unsigned_varint())):
        tag, size = reader.unsigned_varint(), reader.unsigned_varint()
        begin = reader.advance(size)
        if tag in tagged:
            name, read, _, _ = tagged[tag]
            reader.position = begin
            values[name] = read(reader)
            if reader.position != begin + size:
                raise MalformedMessageError(
                    f"tagged field {tag} ({name}) at byte {begin} does not end after its {size} bytes"
                )


def _struct_writer(plain: _Plain, tagged: _Tagged, is_flexible: bool) -> _Write:
    writes = [(name, write) for name, _, write in plain]

    def write_plain(writer: Writer, value: Any) -> None:
        for name, write in writes:
            write(writer, getattr(value, name))

    def write_flexible(writer: Writer, value: Any) -> None:
        for name, write in writes:
            write(writer, getattr(value, name))
        _write_tagged(writer, tagged, value)

    return write_flexible if is_flexible else write_plain


def _write_tagged(writer: Writer, tagged: _Tagged, value: Any) -> None:
    present = [(tag, getattr(value, n), write) for tag, (n, _, write, d) in tagged.items() if getattr(value, n) != d]
    writer.unsigned_varint(len(present))
    for tag, content, write in present:
        inner = Writer()
        write(inner, content)
        writer.unsigned_varint(tag)
        chunks = inner.chunks()
        writer.unsigned_varint(sum(map(len, chunks)))
        for chunk in chunks:
            writer.blob(chunk)


def _struct_in_steps(kind: type[Structure], version: int, *, is_flexible: bool) -> tuple[_StepRead, _StepWrite]:
    key = (kind, version, is_flexible)
    if key not in _made_in_steps:
        _made_in_steps[key] = _make_struct_in_steps(kind, version, is_flexible=is_flexible)
    return _made_in_steps[key]


def _make_struct_in_steps(kind: type[Structure], version: int, *, is_flexible: bool) -> tuple[_StepRead, _StepWrite]:
    plain, tagged = _fields(kind, version, is_flexible=is_flexible)
    arrays = {
        name: _array_in_steps(kind, name, spec, version, is_flexible=is_flexible)
        for name, spec in _arrays(kind, plain).items()
    }

    def read(reader: Reader) -> _Steps:
        values: dict[str, Any] = {}
        for name, read_at_once, _ in plain:
            values[name] = (yield from arrays[name][0](reader)) if name in arrays else read_at_once(reader)
        if is_flexible:
            _read_tagged(reader, tagged, values)
        return kind(**values)

    def write(writer: Writer, value: Any) -> _Steps:
        for name, _, write_at_once in plain:
            if name in arrays:
                yield from arrays[name][1](writer, getattr(value, name))
            else:
                write_at_once(writer, getattr(value, name))
        if is_flexible:
            _write_tagged(writer, tagged, value)

    return read, write


def _arrays(kind: type[Structure], plain: _Plain) -> dict[str, Spec]:
    specs = {field.name: spec_of(field) for field in dataclasses.fields(kind)}
    return {name: specs[name] for name, _, _ in plain if specs[name].is_array}


def _array_in_steps(
    kind: type[Structure], name: str, spec: Spec, version: int, *, is_flexible: bool
) -> tuple[_StepRead, _StepWrite]:
    is_nullable = spec.nullable is not None and version >= spec.nullable
    lengths = _lengths(is_flexible, is_nullable, (Reader.int32, Writer.int32))
    read_length, write_length = _named(kind, name, lengths)
    read_all, write_all = _elements_in_steps(spec.kind, version, is_flexible=is_flexible)

    def read(reader: Reader) -> _Steps:
        length = read_length(reader)
        return None if length is None else (yield from read_all(reader, reader.count(length)))

    def write(writer: Writer, values: list[Any] | None) -> _Steps:
        write_length(writer, None if values is None else len(values))
        yield from write_all(writer, values or [])

    return read, write


def _elements_in_steps(
    kind: Kind | type[Structure], version: int, *, is_flexible: bool
) -> tuple[Callable[[Reader, int], _Steps], Callable[[Writer, list[Any]], _Steps]]:
    """Return a reader and writer that pause within and after elements with arrays, and after several other elements."""
    if not isinstance(kind, Kind) and _arrays(kind, _fields(kind, version, is_flexible=is_flexible)[0]):
        read_steps, write_steps = _struct_in_steps(kind, version, is_flexible=is_flexible)

        def read_each(reader: Reader, count: int) -> _Steps:
            values = []
            for _ in range(count):
                values.append((yield from read_steps(reader)))
                yield
            return values

        def write_each(writer: Writer, values: list[Any]) -> _Steps:
            for value in values:
                yield from write_steps(writer, value)
                yield

        return read_each, write_each

    read_one, write_one = _value(kind, version, is_flexible=is_flexible, is_nullable=False)

    def read_several(reader: Reader, count: int) -> _Steps:
        values: list[Any] = []
        for begin in range(0, count, _ELEMENTS_PER_STEP):
            values += [read_one(reader) for _ in range(min(_ELEMENTS_PER_STEP, count - begin))]
            yield
        return values

    def write_several(writer: Writer, values: list[Any]) -> _Steps:
        for begin in range(0, len(values), _ELEMENTS_PER_STEP):
            for value in values[begin : begin + _ELEMENTS_PER_STEP]:
                write_one(writer, value)
            yield

    return read_several, write_several


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
    """Return the reader and the writer of a length. None stands for null."""
    read_plain, write_plain = plain

    def read(reader: Reader) -> int | None:
        length = reader.unsigned_varint() - 1 if is_flexible else read_plain(reader)
        if length >= 0:
            return int(length)
        if is_nullable and length == -1:
            return None
        raise MalformedMessageError(f"invalid length {length} before byte {reader.position}")

    def write(writer: Writer, length: int | None) -> None:
        if length is None and not is_nullable:
            raise ValueError("null is not allowed in this version")
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
    """Return the functions with a writer whose errors name the field."""
    read, write = functions

    def write_named(writer: Writer, value: Any) -> None:
        try:
            write(writer, value)
        except ValueError as error:
            raise ValueError(f"{kind.__name__}.{name}: {error}") from error

    return read, write_named


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
