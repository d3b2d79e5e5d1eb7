"""Kafka's records of __transaction_state: TransactionLogKey and TransactionLogValue, without I/O.

A value of version 1 has tagged fields. Besides Kafka's, a tag of our own keeps the last epoch, so that a client can
repeat InitProducerId at the next coordinator too. Kafka's readers skip it.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping

from tidelog_node.shards.wire import Reader, Writer
from tidelog_node.transactions.partition_order import in_order
from tidelog_node.transactions.states import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TransactionMetadata,
    TransactionState,
)

_KEY_VERSION = 0
_STEP_TOPICS = 1_000
_PLAIN_VERSION, _TAGGED_VERSION = 0, 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _NEXT_EPOCH, _LAST_EPOCH = 0, 1, 2, 3, 10_000
_TAGS = {
    _PREVIOUS_ID: (struct.Struct(">q"), NO_PRODUCER_ID),
    _NEXT_ID: (struct.Struct(">q"), NO_PRODUCER_ID),
    _CLIENT_VERSION: (struct.Struct(">h"), 0),
    _NEXT_EPOCH: (struct.Struct(">h"), NO_PRODUCER_EPOCH),
    _LAST_EPOCH: (struct.Struct(">h"), NO_PRODUCER_EPOCH),
}
"""The format and the default of each tagged field."""


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's records.

    Raises:
        ValueError: The id has more than 32,767 bytes.
    """
    writer = Writer()
    writer.int16(_KEY_VERSION)
    writer.string(transactional_id)
    return bytes(writer)


def decode_key(key: bytes) -> str | None:
    """Return the transactional id of a key, or None for a key of another kind.

    Raises:
        ValueError: The key is damaged.
    """
    reader = Reader(key)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def encode_value(metadata: TransactionMetadata, version: int) -> bytes:
    """Return a record's value. ``transaction.version`` 0 has no tagged fields."""
    steps = encode_value_in_steps(metadata, version)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: bytes = end.value
            return value


def encode_value_in_steps(metadata: TransactionMetadata, version: int) -> Generator[None, None, bytes]:
    """Encode a record's value like :func:`encode_value`, with pauses, in which the metadata stays as it is."""
    writer = Writer()
    is_tagged = version >= 1
    writer.int16(_TAGGED_VERSION if is_tagged else _PLAIN_VERSION)
    writer.int64(metadata.producer.id)
    writer.int16(metadata.producer.epoch)
    writer.int32(metadata.timeout_ms)
    writer.int8(metadata.state)
    yield from _write_partitions(writer, metadata, is_tagged=is_tagged)
    writer.int64(metadata.updated_ms)
    writer.int64(metadata.started_ms)
    if is_tagged:
        writer.tags(_tags_of(metadata))
    return bytes(writer)


def decode_value(value: bytes) -> TransactionMetadata | None:
    """Return the metadata of a record's value, or None for an unknown version.

    Raises:
        ValueError: The value is damaged.
    """
    reader = Reader(value)
    version = reader.int16()
    if version not in (_PLAIN_VERSION, _TAGGED_VERSION):
        return None
    is_tagged = version == _TAGGED_VERSION
    producer = Producer(reader.int64(), reader.int16())
    timeout_ms, state = reader.int32(), TransactionState(reader.int8())
    partitions = _read_partitions(reader, is_tagged=is_tagged)
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = _values_of(reader.tags() if is_tagged else {})
    return TransactionMetadata(
        producer,
        state,
        timeout_ms,
        updated_ms,
        started_ms,
        partitions,
        tags[_PREVIOUS_ID],
        Producer(tags[_NEXT_ID], _next_epoch(tags)),
        tags[_LAST_EPOCH],
        tags[_CLIENT_VERSION],
    )


def _next_epoch(tags: Mapping[int, int]) -> int:
    """Return the next epoch. Kafka records only the id of a producer that begins with epoch 0."""
    return 0 if tags[_NEXT_ID] != NO_PRODUCER_ID and tags[_NEXT_EPOCH] == NO_PRODUCER_EPOCH else tags[_NEXT_EPOCH]


def _write_partitions(writer: Writer, metadata: TransactionMetadata, *, is_tagged: bool) -> Iterator[None]:
    if metadata.state is TransactionState.EMPTY:
        if is_tagged:
            writer.unsigned_varint(0)
        else:
            writer.int32(-1)
        return
    by_topic: dict[str, list[int]] = {}
    for partition in in_order(metadata.partitions):
        if partition is None:
            yield
        else:
            topic, index = partition
            by_topic.setdefault(topic, []).append(index)
    if is_tagged:
        writer.unsigned_varint(len(by_topic) + 1)
    else:
        writer.int32(len(by_topic))
    for place, (topic, indexes) in enumerate(by_topic.items()):
        if place and place % _STEP_TOPICS == 0:
            yield
        if is_tagged:
            writer.compact_string(topic)
            writer.unsigned_varint(len(indexes) + 1)
            writer.int32s(indexes)
            writer.tags()
        else:
            writer.string(topic)
            writer.int32(len(indexes))
            writer.int32s(indexes)


def _read_partitions(reader: Reader, *, is_tagged: bool) -> frozenset[tuple[str, int]]:
    def read() -> list[tuple[str, int]]:
        topic = reader.compact_string() if is_tagged else reader.string()
        indexes = reader.int32s(reader.unsigned_varint() - 1 if is_tagged else reader.int32())
        if is_tagged:
            reader.tags()
        return [(topic, index) for index in indexes]

    topics = reader.nullable_compact_array(read) if is_tagged else reader.nullable_array(read)
    return frozenset(partition for topic in topics or () for partition in topic)


def _tags_of(metadata: TransactionMetadata) -> dict[int, bytes]:
    values = {
        _PREVIOUS_ID: metadata.previous_producer_id,
        _NEXT_ID: metadata.next_producer.id,
        _CLIENT_VERSION: metadata.client_version,
        _NEXT_EPOCH: metadata.next_producer.epoch,
        _LAST_EPOCH: metadata.last_producer_epoch,
    }
    return {tag: _TAGS[tag][0].pack(value) for tag, value in values.items() if value != _TAGS[tag][1]}


def _values_of(tags: Mapping[int, bytes]) -> dict[int, int]:
    values = {}
    for tag, (form, default) in _TAGS.items():
        data = tags.get(tag)
        if data is not None and len(data) != form.size:
            raise ValueError(f"tagged field {tag} has {len(data)} bytes, not {form.size}")
        values[tag] = default if data is None else form.unpack(data)[0]
    return values
