"""Random requests of Kafka's protocol, generated from their declarations, and hostile mutations of them."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.kafka.protocol import messages
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import (
    Kind,
    Message,
    Spec,
    Structure,
    array,
    data,
    int8,
    int16,
    int32,
    int64,
    spec_of,
    string,
    structure,
    uuid,
)
from tidelog_node.kafka.protocol.headers import read_request_header, write_request_header
from tidelog_node.kafka.protocol.messages import fetch_request, produce
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer


class ProducePartition(Structure):
    index: int = int32()
    records: bytes | None = data(nullable=0)


class ProduceTopic(Structure):
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[ProducePartition] = array(ProducePartition)


class ProduceRequest(Message, api=ApiKey.PRODUCE, versions=(0, 13), flexible=9):
    """A declaration for the tests, since the product reads it without one."""

    transactional_id: str | None = string(default=None, nullable=3, since=3)
    acks: int = int16(default=-1)
    timeout_ms: int = int32()
    topics: list[ProduceTopic] = array(ProduceTopic)


class FetchPartition(Structure):
    index: int = int32()
    current_leader_epoch: int = int32(default=-1, since=9)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(default=-1, since=12)
    log_start_offset: int = int64(default=-1, since=5)
    max_bytes: int = int32()


class FetchTopic(Structure):
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Structure):
    name: str = string(until=12)
    topic_id: bytes = uuid(since=13)
    partitions: list[int] = array(Kind.INT32)


class ReplicaState(Structure):
    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchRequest(Message, api=ApiKey.FETCH, versions=(4, 18), flexible=12):
    """A declaration for the tests, since the product reads it without one."""

    cluster_id: str | None = string(default=None, nullable=12, tag=0, since=12, tagged=12)
    replica_id: int = int32(default=-1, until=14)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32()
    isolation_level: int = int8()
    session_id: int = int32(since=7)
    session_epoch: int = int32(default=-1, since=7)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11)
    replica_state: ReplicaState = structure(ReplicaState, tag=1, since=15, tagged=15)


_BY_HAND: Mapping[ApiKey, tuple[type[Message], Callable[[Reader, int], object]]] = {
    ApiKey.PRODUCE: (ProduceRequest, produce.decode_request),
    ApiKey.FETCH: (FetchRequest, fetch_request.decode_request),
}


def declarations() -> dict[ApiKey, type[Message]]:
    """Return the declaration of each API's request."""
    found = {key: kind for key, (kind, _) in _BY_HAND.items()}
    for module in pkgutil.iter_modules(messages.__path__, f"{messages.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__name__.endswith("Request"):
                found[ApiKey(value.API_KEY)] = value
    return found


def read_request(frame: bytes, kind: type[Message]) -> object:
    """Read a request as a node does.

    Raises:
        MalformedMessageError: The frame is not such a request.
    """
    header = read_request_header(frame)
    reader = Reader(memoryview(frame), header.end)
    if header.version >= kind.FLEXIBLE:
        reader.skip_tagged_fields()
    by_hand = _BY_HAND.get(ApiKey(kind.API_KEY))
    if by_hand is not None:
        return by_hand[1](reader, header.version)
    return decode(kind, reader, header.version)


def any_request(kind: type[Message], version: int, rng: random.Random, names: Sequence[str] = ("topic-1",)) -> bytes:
    """Return the frame of a well-formed request with arbitrary values, without its length."""
    writer = Writer()
    is_flexible = version >= kind.FLEXIBLE
    write_request_header(writer, int(kind.API_KEY), version, rng.randrange(2**31), "fuzz", is_flexible=is_flexible)
    encode(_any_struct(kind, version, rng, names), writer, version)
    return b"".join(writer.chunks())


def framed(frame: bytes) -> bytes:
    """Return a frame preceded by its length."""
    return struct.pack(">i", len(frame)) + frame


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """Return a frame with a few bytes changed, inserted, removed, doubled or cut off."""
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        rng.choice(_MUTATIONS)(changed, rng)
    return bytes(changed)


def _flip(frame: bytearray, rng: random.Random) -> None:
    if frame:
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)


def _overwrite(frame: bytearray, rng: random.Random) -> None:
    value = rng.choice(_EXTREMES)
    position = rng.randrange(len(frame) + 1)
    frame[position : position + len(value)] = value


def _insert(frame: bytearray, rng: random.Random) -> None:
    position = rng.randrange(len(frame) + 1)
    frame[position:position] = rng.choice((rng.randbytes(rng.randrange(1, 9)), rng.choice(_EXTREMES)))


def _delete(frame: bytearray, rng: random.Random) -> None:
    position = rng.randrange(len(frame) + 1)
    del frame[position : position + rng.randrange(1, 9)]


def _double(frame: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(frame) + 1)
    end = begin + rng.randrange(1, 40)
    frame[end:end] = frame[begin:end] * rng.choice((1, 1, 50))


def _cut(frame: bytearray, rng: random.Random) -> None:
    del frame[rng.randrange(len(frame) + 1) :]


_MUTATIONS = (_flip, _flip, _overwrite, _overwrite, _insert, _delete, _double, _cut)
_EXTREMES = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x0f\xff\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x00",
    b"\xff\xff\x3f",
    b"\x00" * 40,
)
_INTEGERS = {Kind.INT8: 7, Kind.INT16: 15, Kind.INT32: 31, Kind.INT64: 63}


@functools.cache
def _fields(kind: type[Structure], version: int) -> tuple[tuple[str, Spec], ...]:
    specs = [(f.name, spec_of(f)) for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return tuple((name, spec) for name, spec in specs if spec.since <= version <= spec.until)


def _any_struct(kind: type[Structure], version: int, rng: random.Random, names: Sequence[str]) -> Any:
    return kind(**{name: _any_value(spec, version, rng, names) for name, spec in _fields(kind, version)})


def _any_value(spec: Spec, version: int, rng: random.Random, names: Sequence[str]) -> object:
    if spec.nullable is not None and version >= spec.nullable and rng.random() < 0.2:
        return None
    if spec.is_array:
        element = dataclasses.replace(spec, is_array=False, nullable=None)
        return [_any_value(element, version, rng, names) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
    if not isinstance(spec.kind, Kind):
        return _any_struct(spec.kind, version, rng, names)
    return _any_primitive(spec.kind, rng, names)


def _any_primitive(kind: Kind, rng: random.Random, names: Sequence[str]) -> object:
    bits = _INTEGERS.get(kind)
    if bits is not None:
        extreme = rng.choice((-(2**bits), 2**bits - 1, rng.randrange(-(2**bits), 2**bits)))
        return rng.choice((-2, -1, 0, 0, 0, 1, 1, 2, 7, 100, extreme))
    if kind is Kind.BYTES:
        return rng.choice((b"", rng.randbytes(rng.randrange(200)), _batch(rng)))
    some: dict[Kind, Callable[[], object]] = {
        Kind.BOOLEAN: lambda: rng.random() < 0.5,
        Kind.UINT16: lambda: rng.randrange(2**16),
        Kind.UUID: lambda: rng.choice((bytes(16), rng.randbytes(16))),
        Kind.FLOAT64: lambda: rng.choice((0.0, -1.5, 1e308, float("inf"), float("nan"))),
        Kind.STRING: lambda: rng.choice((*names, *names, "", "-", "ä" * 70, "a.b_c-1", "1", "x" * 300)),
    }
    return some[kind]()


def _batch(rng: random.Random) -> bytes:
    builder = RecordBatchBuilder(rng.choice(("none", "gzip", "lz4", "zstd", "snappy")))
    for _ in range(rng.randrange(1, 4)):
        builder.append(b"key", rng.randbytes(20), timestamp_ms=1_700_000_000_000)
    return builder.build()


def pieces(sent: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield the bytes in pieces of random sizes."""
    position = 0
    while position < len(sent):
        end = position + rng.choice((1, 4, 50, 2_000, len(sent)))
        yield sent[position:end]
        position = end
