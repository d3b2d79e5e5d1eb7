"""DeserializingConsumer: objects for bytes, and errors that carry the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import OFFSET_BEGINNING, TopicPartition
from tidelog.consumer import DeserializingConsumer
from tidelog.serialization import (
    ConsumeError,
    IntegerDeserializer,
    JSONDeserializer,
    KeyDeserializationError,
    MessageField,
    SerializationContext,
    SerializationError,
    ValueDeserializationError,
)
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ConfigError, ErrorCode
from tidelog_foundation.records import RecordBatchBuilder


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    builder = RecordBatchBuilder()
    builder.append(b"\0\0\0\7", b'{"a":1}', (), 1)
    builder.append(b"short", b"{}", (), 1)
    builder.append(None, b"no json", [("h", b"x")], 1)
    builder.append(None, None, (), 1)
    with FakeCluster() as running:
        running.create_topic("t")
        running.append("t", 0, builder.build())
        yield running


def make(cluster: FakeCluster, **more: Any) -> DeserializingConsumer:
    functions = {"key.deserializer": IntegerDeserializer(), "value.deserializer": JSONDeserializer(), **more}
    consumer = DeserializingConsumer({"bootstrap.servers": cluster.bootstrap_servers, **functions})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    return consumer


def test_messages_have_objects_and_errors_have_the_message(cluster: FakeCluster) -> None:
    with make(cluster) as consumer:
        message = consumer.poll(10)
        assert message is not None
        assert (message.key(), message.value()) == (7, {"a": 1})
        with pytest.raises(KeyDeserializationError) as of_key:
            consumer.poll(10)
        assert of_key.value.code is ErrorCode._KEY_DESERIALIZATION
        assert of_key.value.kafka_message.key() == b"short"
        assert isinstance(of_key.value.exception, SerializationError)
        with pytest.raises(ValueDeserializationError) as of_value:
            consumer.poll(10)
        assert of_value.value.code is ErrorCode._VALUE_DESERIALIZATION
        assert of_value.value.kafka_message.value() == b"no json"
        last = consumer.poll(10)
        assert last is not None
        assert (last.key(), last.value()) == (None, None)
        assert consumer.poll(0) is None


def test_deserializers_are_told_of_the_record(cluster: FakeCluster) -> None:
    told: list[tuple[str, MessageField, Any]] = []

    def take(value: bytes | None, context: SerializationContext) -> bytes | None:
        told.append((context.topic, context.field, context.headers))
        return value

    with make(cluster, **{"key.deserializer": take, "value.deserializer": take}) as consumer:
        for _ in range(3):
            assert consumer.poll(10) is not None
    assert told[4:] == [("t", MessageField.KEY, [("h", b"x")]), ("t", MessageField.VALUE, [("h", b"x")])]


def test_an_event_is_raised(cluster: FakeCluster) -> None:
    with make(cluster, **{"auto.offset.reset": "error"}) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(ConsumeError) as failure:
            consumer.poll(10)
        assert failure.value.code is ErrorCode._AUTO_OFFSET_RESET
        assert failure.value.kafka_message.topic() == "t"


def test_bytes_stay_as_they_are_without_a_deserializer(cluster: FakeCluster) -> None:
    consumer = DeserializingConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers}, value_deserializer=JSONDeserializer()
    )
    with consumer:
        consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
        message = consumer.poll(10)
        assert message is not None
        assert (message.key(), message.value()) == (b"\0\0\0\7", {"a": 1})


def test_what_cannot_be_done_is_refused(cluster: FakeCluster) -> None:
    with make(cluster) as consumer, pytest.raises(NotImplementedError, match=r"use poll\(\)"):
        consumer.consume(1)
    with pytest.raises(ConfigError, match=r"key.deserializer.*must be callable, not int"):
        make(cluster, **{"key.deserializer": 3})
