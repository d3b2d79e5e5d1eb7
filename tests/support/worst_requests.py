"""Well-formed requests of a given size with the highest possible cost to a server: many elements, long texts.

They are generated from the declarations of Kafka's messages and the descriptors of gRPC's. For each repeated field, at
any depth, there is a request with as many of its smallest elements as fit, all different; for a nested one also a
request in which as many outer elements have one inner element each; and one request with long texts.

Each exists in two forms: with a value in every field, and ``alone``, with defaults in all fields except the elements.
Either an additional value, such as the id of another cluster, or a missing one, such as a group id, may cause a refusal
before the elements are checked.

Each request is built when it is needed: a caller may want few of them.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from tidelog_node.kafka.protocol.codec import encode
from tidelog_node.kafka.protocol.fields import Kind, Message, Spec, Structure, spec_of
from tidelog_node.kafka.protocol.headers import write_request_header
from tidelog_node.kafka.protocol.writer import Writer

MAX_ELEMENTS = 100_000
ALONE = ", alone"
_INTEGERS = (Kind.INT32, Kind.INT64)
_MAX_TEXT = 32_000

Build: TypeAlias = Callable[[], bytes]


def kafka_frames(kind: type[Message], version: int, size: int) -> Iterator[tuple[str, Build]]:
    """Yield the name of each of the worst requests of an API, and what builds its frame without its length."""
    for path in _kafka_paths(kind, version):
        name = ".".join(path)
        one = len(_kafka_frame(kind, version, path, 2, 1)) - len(_kafka_frame(kind, version, path, 1, 1))
        count = min(MAX_ELEMENTS - len(path), max(1, size // (one + 3)))
        yield from _kafka_both(f"many {name}", kind, version, path, count, 1)
        if len(path) > 1:
            pairs = min(MAX_ELEMENTS // len(path), max(1, size // (one + 12)))
            yield from _kafka_both(f"one {name} each", kind, version, path, 1, pairs)
    yield "long texts", partial(_kafka_long, kind, version, size)


def grpc_requests(kind: Descriptor, size: int) -> Iterator[tuple[str, Build]]:
    """Yield the name of each of the worst requests of a type, one with too many elements too, and what builds it."""
    yield "numbers alone", partial(_grpc_request, kind, (), 0, 1)
    for path in _grpc_paths(kind):
        name = ".".join(field.name for field in path)
        one = len(_grpc_request(kind, path, 2, 1)) - len(_grpc_request(kind, path, 1, 1))
        count = min(MAX_ELEMENTS - len(path), max(1, size // (one + 3)))
        yield from _grpc_both(f"many {name}", kind, path, count, 1)
        if sum(field.is_repeated for field in path) > 1:
            pairs = min(MAX_ELEMENTS // len(path), max(1, size // (one + 12)))
            yield from _grpc_both(f"one {name} each", kind, path, 1, pairs)
        if len(path) == 1 and path[0].type == FieldDescriptor.TYPE_MESSAGE:
            # Empty elements give the most objects per byte.
            tag = bytes([path[0].number << 3 | 2, 0])
            yield f"empty {name}", partial(operator.mul, tag, size // 2)
    texts = [f for f in kind.fields if f.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)]
    if texts:
        yield "long texts", partial(_grpc_long, kind, texts, size)


def _kafka_both(
    name: str, kind: type[Message], version: int, path: tuple[str, ...], count: int, outer: int
) -> Iterator[tuple[str, Build]]:
    yield name, partial(_kafka_frame, kind, version, path, count, outer)
    if _kafka_frame(kind, version, path, 1, 1, is_alone=True) != _kafka_frame(kind, version, path, 1, 1):
        yield f"{name}{ALONE}", partial(_kafka_frame, kind, version, path, count, outer, is_alone=True)


def _grpc_both(
    name: str, kind: Descriptor, path: tuple[FieldDescriptor, ...], count: int, outer: int
) -> Iterator[tuple[str, Build]]:
    yield name, partial(_grpc_request, kind, path, count, outer)
    # The first of several elements has zeros, which are not serialized.
    if _grpc_request(kind, path, 2, 2, is_alone=True) != _grpc_request(kind, path, 2, 2):
        yield f"{name}{ALONE}", partial(_grpc_request, kind, path, count, outer, is_alone=True)


def _kafka_paths(kind: type[Structure], version: int) -> Iterator[tuple[str, ...]]:
    for name, spec in _kafka_fields(kind, version):
        if spec.is_array:
            yield (name,)
        if not isinstance(spec.kind, Kind):
            for inner in _kafka_paths(spec.kind, version):
                yield (name, *inner)


def _kafka_fields(kind: type[Structure], version: int) -> list[tuple[str, Spec]]:
    specs = [(field.name, spec_of(field)) for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return [(name, spec) for name, spec in specs if spec.since <= version <= spec.until]


def _kafka_frame(
    kind: type[Message], version: int, path: tuple[str, ...], count: int, outer: int, *, is_alone: bool = False
) -> bytes:
    return serialized(_kafka_struct(kind, version, path, count, outer, 0, is_alone=is_alone), kind, version)


def serialized(message: Message, kind: type[Message], version: int) -> bytes:
    """Return the frame of a request without its length."""
    writer = Writer()
    write_request_header(writer, int(kind.API_KEY), version, 7, "worst", is_flexible=version >= kind.FLEXIBLE)
    encode(message, writer, version)
    return b"".join(writer.chunks())


def _kafka_struct(
    kind: type[Structure],
    version: int,
    path: tuple[str, ...],
    count: int,
    outer: int,
    number: int,
    *,
    is_alone: bool = False,
) -> Any:
    """Return a struct made unique by its ``number``, with the elements of the path in it."""
    values: dict[str, Any] = {}
    for name, spec in _kafka_fields(kind, version):
        inner = path[1:] if path and path[0] == name else ()
        if path and path[0] == name:
            total = (outer if inner else count) if spec.is_array else 1
            # Only the first array of a path has many outer elements.
            below = 1 if spec.is_array else outer
            elements = [_kafka_value(spec, version, inner, count, below, index) for index in range(total)]
            values[name] = elements if spec.is_array else elements[0]
        elif spec.is_array:
            values[name] = []
        elif not is_alone:
            values[name] = _kafka_value(spec, version, (), 0, 1, number)
    return kind(**values)


def _kafka_value(spec: Spec, version: int, path: tuple[str, ...], count: int, outer: int, number: int) -> Any:
    if not isinstance(spec.kind, Kind):
        return _kafka_struct(spec.kind, version, path, count, outer, number)
    if spec.kind is Kind.STRING:
        return f"{number:x}"
    if spec.kind is Kind.UUID:
        return (number + 1).to_bytes(16, "big")
    if spec.kind is Kind.BYTES:
        return b""
    if spec.kind is Kind.BOOLEAN:
        return False
    return number if spec.kind in _INTEGERS else 0


def _kafka_long(kind: type[Message], version: int, size: int) -> bytes:
    message: Any = _kafka_struct(kind, version, (), 0, 1, 0)
    for name, spec in _kafka_fields(kind, version):
        if spec.kind is Kind.STRING and not spec.is_array:
            setattr(message, name, "x" * min(size, _MAX_TEXT))
        elif spec.kind is Kind.STRING:
            setattr(message, name, [f"{n:x}".ljust(_MAX_TEXT, "x") for n in range(size // _MAX_TEXT)])
        elif spec.kind is Kind.BYTES and not spec.is_array:
            setattr(message, name, b"x" * size)
    return serialized(message, kind, version)


def _grpc_paths(kind: Descriptor) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in kind.fields:
        if field.is_repeated:
            yield (field,)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in _grpc_paths(field.message_type):
                yield (field, *inner)


def _grpc_request(
    kind: Descriptor, path: tuple[FieldDescriptor, ...], count: int, outer: int, *, is_alone: bool = False
) -> bytes:
    message = GetMessageClass(kind)()
    _fill(message, path, count, outer, None if is_alone else 0)
    serialized: bytes = message.SerializeToString()
    return serialized


def _fill(message: Any, path: tuple[FieldDescriptor, ...], count: int, outer: int, number: int | None) -> None:
    """Fill all fields of a message with ``number``, or only the elements of the path."""
    for field in message.DESCRIPTOR.fields if number is not None else ():
        if not field.is_repeated:
            if field.type == FieldDescriptor.TYPE_STRING:
                setattr(message, field.name, f"{number:x}")
            elif field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64):
                setattr(message, field.name, number)
    if not path:
        return
    field, inner = path[0], path[1:]
    if not field.is_repeated:
        _fill(getattr(message, field.name), inner, count, outer, number)
        return
    target = getattr(message, field.name)
    for index in range(outer if inner else count):
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            _fill(target.add(), inner, count, 1, index)
        else:
            target.append(_primitive(field, index))


def _grpc_long(kind: Descriptor, texts: list[FieldDescriptor], size: int) -> bytes:
    message = GetMessageClass(kind)()
    for field in texts:
        _set_text(message, field, "x" * (size // len(texts)))
    serialized: bytes = message.SerializeToString()
    return serialized


def _primitive(field: FieldDescriptor, number: int) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return f"{number:x}"
    return number.to_bytes(16, "big") if field.type == FieldDescriptor.TYPE_BYTES else number % 2**31


def _set_text(message: Any, field: FieldDescriptor, text: str) -> None:
    value: Any = text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)
