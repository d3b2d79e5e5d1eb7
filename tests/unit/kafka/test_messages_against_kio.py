"""Every declared message, in every version, against another library's reading of Kafka's definitions (kio)."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import io
import pkgutil
import random
import typing
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tidelog_node.kafka.protocol import messages
from tidelog_node.kafka.protocol.codec import decode, decode_in_steps, encode, encode_in_steps
from tidelog_node.kafka.protocol.fields import Kind, Message, Spec, Structure, spec_of
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer

_INTEGERS = (Kind.INT8, Kind.INT16, Kind.UINT16, Kind.INT32, Kind.INT64)


def declared() -> Iterator[type[Message]]:
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.name:
                yield value


CASES = [
    pytest.param(kind, version, id=f"{kind.__name__}-{version}")
    for kind in declared()
    for version in range(kind.VERSIONS[0], kind.VERSIONS[1] + 1)
]


def oracle(kind: type[Message], version: int) -> Any:
    load = load_request_schema if kind.__name__.endswith("Request") else load_response_schema
    return load(int(kind.API_KEY), version)  # type: ignore[arg-type]


def any_value(spec: Spec, version: int, draw: random.Random, *, may_be_null: bool = True) -> object:
    if may_be_null and spec.nullable is not None and version >= spec.nullable and draw.random() < 0.2:
        return None
    if spec.is_array:
        element = dataclasses.replace(spec, is_array=False, nullable=None)
        return [any_value(element, version, draw) for _ in range(draw.randrange(3))]
    if not isinstance(spec.kind, Kind):
        return any_struct(spec.kind, version, draw)
    if spec.kind in _INTEGERS:
        return draw.randrange(1, 100)
    some: dict[Kind, object] = {
        Kind.BOOLEAN: draw.random() < 0.5,
        Kind.UUID: draw.randbytes(16),
        Kind.FLOAT64: draw.uniform(0, 1e9),
        Kind.STRING: draw.choice(("a", "topic-1", "ä" * 70)),
        Kind.BYTES: memoryview(draw.randbytes(draw.choice((1, 200)))),
    }
    return some[spec.kind]


def any_struct(kind: type[Structure], version: int, draw: random.Random) -> Any:
    values = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        spec = spec_of(field)
        if spec.since <= version <= spec.until and not is_own(spec):
            values[field.name] = any_value(spec, version, draw)
    return kind(**values)


def is_own(spec: Spec) -> bool:
    """Return whether a field is Tidelog's own; Kafka's clients skip such fields and kio refuses them."""
    return spec.tag is not None and spec.tag >= 10_000


def names(name: str) -> str:
    """kio has durations and times without their unit, and fields of its own names for Python's keywords."""
    return name.removesuffix("_ms").removesuffix("_")


def check_names(kind: type[Structure], other: Any, version: int) -> None:
    ours = {f.name: spec_of(f) for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    present = {names(n): spec for n, spec in ours.items() if spec.since <= version <= spec.until and not is_own(spec)}
    theirs = {names(f.name): f for f in dataclasses.fields(other)}
    plain = [n for n, f in theirs.items() if "tag" not in f.metadata]
    assert [n for n in present if n in plain] == plain
    assert {n: s.tag for n, s in present.items() if n not in plain} == {
        n: f.metadata["tag"] for n, f in theirs.items() if n not in plain
    }
    hints = typing.get_type_hints(other)
    for name, spec in present.items():
        if not isinstance(spec.kind, Kind):
            check_names(spec.kind, nested(hints[theirs[name].name]), version)


def nested(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next(found for part in typing.get_args(hint) if part is not type(None) and (found := nested(part)))


def is_known(kind: type[Message], version: int) -> bool:
    """Return whether kio has this version; it lacks those that Kafka 4 removed."""
    try:
        oracle(kind, version)
    except UnknownEntity:
        return False
    return True


def check_in_steps(message: Message, version: int, encoded: bytes) -> None:
    """Assert that encoding and decoding in steps give the same results."""
    writer, reader = Writer(), Reader(memoryview(encoded))
    collections.deque(encode_in_steps(message, writer, version), maxlen=0)
    assert b"".join(writer.chunks()) == encoded
    assert result_of(decode_in_steps(type(message), reader, version)) == message
    assert reader.remaining == 0


def result_of(steps: Generator[None, None, Message]) -> Message:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            message: Message = end.value
            return message


@pytest.mark.parametrize(("kind", "version"), CASES)
def test_message_is_what_kafka_says(kind: type[Message], version: int) -> None:
    draw = random.Random(f"{kind.__name__}-{version}")
    known = is_known(kind, version)
    if known:
        check_names(kind, oracle(kind, version), version)
        assert oracle(kind, version).__flexible__ == (version >= kind.FLEXIBLE)
    for _ in range(8):
        message = any_struct(kind, version, draw)
        writer = Writer()
        encode(message, writer, version)
        encoded = b"".join(writer.chunks())
        reader = Reader(memoryview(encoded))
        assert decode(kind, reader, version) == message
        assert reader.remaining == 0
        check_in_steps(message, version, encoded)
        if known:
            theirs, size = entity_reader(oracle(kind, version))(encoded, 0)
            assert size == len(encoded)
            written = io.BytesIO()
            entity_writer(oracle(kind, version))(written, theirs)
            assert written.getvalue() == encoded
