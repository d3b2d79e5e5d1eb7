"""Programs as one writes them for confluent-kafka do what they should with nothing but their imports changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tidelog import (
    OFFSET_INVALID,
    Consumer,
    DeserializingConsumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    SerializingProducer,
    TopicPartition,
)
from tidelog.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec
from tidelog.serialization import (
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    SerializationContext,
    StringDeserializer,
    StringSerializer,
)
from tidelog.testing import FakeCluster


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    with FakeCluster() as cluster:
        cluster.create_topic("lagging", partitions=1)
        cluster.create_topic("users", partitions=2)
        yield cluster.bootstrap_servers


def test_lines_are_produced_with_callbacks_and_consumed_by_a_group(bootstrap_servers: str) -> None:
    conf: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    AdminClient(conf).create_topics([NewTopic("lines", num_partitions=3, replication_factor=1)])["lines"].result()
    delivered: list[tuple[str, int, int]] = []

    def delivery_callback(err: KafkaError | None, msg: Message) -> None:
        assert not err, f"message failed delivery: {err}"
        delivered.append((msg.topic(), msg.partition(), msg.offset()))  # type: ignore[arg-type]

    p = Producer(**conf)  # type: ignore[arg-type]
    for line in ("one", "two", "three", "four"):
        try:
            p.produce("lines", line.rstrip(), callback=delivery_callback)
        except BufferError:
            pytest.fail(f"local producer queue is full ({len(p)} messages awaiting delivery)")
        p.poll(0)
    assert p.flush() == 0
    assert len(delivered) == 4

    conf |= {"group.id": "g", "session.timeout.ms": 6000, "auto.offset.reset": "earliest"}
    conf |= {"enable.auto.offset.store": False}
    assigned: list[TopicPartition] = []
    c = Consumer(conf)
    c.subscribe(["lines"], on_assign=lambda consumer, partitions: assigned.extend(partitions))
    read: list[bytes] = []
    try:
        while len(read) < 4:
            msg = c.poll(timeout=1.0)
            if msg is None:
                continue
            if msg.error():
                raise KafkaException(msg.error())
            read.append(msg.value())
            c.store_offsets(msg)
    finally:
        c.close()
    assert sorted(read) == [b"four", b"one", b"three", b"two"]
    assert [p.partition for p in sorted(assigned)] == [0, 1, 2]
    with Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "g"}) as after:
        committed = after.committed([TopicPartition("lines", n) for n in range(3)], timeout=10)
    assert sum(max(p.offset, 0) for p in committed) == 4


def test_the_lag_of_a_group_is_listed(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for n in range(5):
        producer.produce("lagging", key=str(n), value="v", partition=0)
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "lag"})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 2)], asynchronous=False)
    metadata = consumer.list_topics("lagging", timeout=10)
    if metadata.topics["lagging"].error is not None:
        raise KafkaException(metadata.topics["lagging"].error)
    partitions = [TopicPartition("lagging", p) for p in metadata.topics["lagging"].partitions]
    lags = {}
    for partition in consumer.committed(partitions, timeout=10):
        lo, hi = consumer.get_watermark_offsets(partition, timeout=10, cached=False)
        lags[partition.partition] = hi - (lo if partition.offset == OFFSET_INVALID else partition.offset)
    consumer.close()
    assert lags[0] == 3


@dataclass
class User:
    name: str
    favorite_number: int


def test_objects_travel_as_json_with_serializers_in_hand_and_in_the_settings(bootstrap_servers: str) -> None:
    conf = {"bootstrap.servers": bootstrap_servers}
    string_serializer = StringSerializer("utf_8")
    producer = Producer(conf)
    value = JSONSerializer()(vars(User("ada", 7)), SerializationContext("users", MessageField.VALUE))
    producer.produce(topic="users", key=string_serializer("ada"), value=value, on_delivery=lambda err, msg: None)
    producer.flush()
    serializing = SerializingProducer(
        {**conf, "key.serializer": string_serializer, "value.serializer": JSONSerializer()}
    )
    serializing.produce("users", "bob", vars(User("bob", 8)))
    serializing.flush()
    consumer = DeserializingConsumer(
        {
            **conf,
            "group.id": "json",
            "auto.offset.reset": "earliest",
            "key.deserializer": StringDeserializer("utf_8"),
            "value.deserializer": JSONDeserializer(),
        }
    )
    consumer.subscribe(["users"])
    users: dict[str, User] = {}
    while len(users) < 2:
        msg = consumer.poll(1.0)
        if msg is not None:
            users[msg.key()] = User(**msg.value())
    consumer.close()
    assert users == {"ada": User("ada", 7), "bob": User("bob", 8)}
    assert json.loads(value) == {"name": "ada", "favorite_number": 7}


def test_the_admin_clients_main_paths(bootstrap_servers: str) -> None:
    a = AdminClient({"bootstrap.servers": bootstrap_servers})
    for topic, created in a.create_topics([NewTopic("t1", 1, 1), NewTopic("t2", 1, 1)], operation_timeout=10).items():
        assert created.result() is None, topic
    with pytest.raises(KafkaException) as refused:
        a.create_topics([NewTopic("t1", 1, 1)])["t1"].result()
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS  # type: ignore[attr-defined]
    a.create_partitions([NewPartitions("t1", 3)])["t1"].result()
    assert len(a.list_topics(timeout=10).topics["t1"].partitions) == 3
    resource = ConfigResource("topic", "t1")
    entries = next(iter(a.describe_configs([resource]).values())).result()
    assert entries["retention.ms"].name == "retention.ms"
    found = a.list_offsets({TopicPartition("t1", 0): OffsetSpec.latest()})
    assert [future.result().offset for future in found.values()] == [0]
    assert a.delete_topics(["t2"], operation_timeout=30)["t2"].result() is None
    assert "t2" not in a.list_topics(timeout=10).topics
