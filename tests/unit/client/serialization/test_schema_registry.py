"""Avro, JSON and Protobuf with a schema registry: confluent-kafka's serializers, with Tidelog's clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka.serialization
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

pytest.importorskip(
    "confluent_kafka.schema_registry.avro", reason="needs tidelog[schema-registry]", exc_type=ImportError
)

from tidelog import Consumer, DeserializingConsumer, KafkaException, Producer, SerializingProducer
from tidelog.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from tidelog.avro import AvroConsumer, AvroProducer, loads
from tidelog.error import ValueDeserializationError, ValueSerializationError
from tidelog.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
from tidelog.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroDeserializerBuilder,
    AvroSerializer,
    AvroSerializerBuilder,
)
from tidelog.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from tidelog.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from tidelog.serialization import MessageField, SerializationContext, StringDeserializer, StringSerializer
from tidelog.testing import FakeCluster

AVRO = json.dumps(
    {
        "type": "record",
        "name": "User",
        "fields": [{"name": "name", "type": "string"}, {"name": "number", "type": "long"}],
    }
)
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "User",
        "type": "object",
        "properties": {"name": {"type": "string"}, "number": {"type": "number", "exclusiveMinimum": 0}},
        "required": ["name", "number"],
    }
)
USER = {"name": "Ada", "number": 7}


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    with FakeCluster(auto_create_topics=True) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def registry() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://"})


def _group(bootstrap_servers: str, topic: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}


def _read(consumer: Consumer, topic: str) -> Any:
    with consumer:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        return message.key(), message.value()


def _avro(registry: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    return AvroSerializer(registry, AVRO), AvroDeserializer(registry, AVRO), USER


def _json(registry: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    return JSONSerializer(JSON, registry), JSONDeserializer(JSON, schema_registry_client=registry), USER


def _protobuf(registry: SchemaRegistryClient) -> tuple[Any, Any, Any]:
    settings = {"use.deprecated.format": False}
    kind = _message_class()
    value = kind(name="Ada")
    return ProtobufSerializer(kind, registry, settings), ProtobufDeserializer(kind, settings, registry), value


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="test_schema_registry.proto", syntax="proto3")
    field = file.message_type.add(name="User").field.add(name="name", number=1)
    field.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("User"))


@pytest.mark.parametrize("kind", [_avro, _json, _protobuf])
def test_objects_come_back_from_a_log_with_a_registry(
    kind: Any, bootstrap_servers: str, registry: SchemaRegistryClient
) -> None:
    topic = f"objects{kind.__name__}"
    serializer, deserializer, value = kind(registry)
    keys = {"key.serializer": StringSerializer("utf_8"), "value.serializer": serializer}
    with SerializingProducer({"bootstrap.servers": bootstrap_servers, **keys}) as producer:
        producer.produce(topic, key="k", value=value)
    raw = _read(Consumer({**_group(bootstrap_servers, topic), "group.id": "raw"}), topic)
    assert raw[1][0] == 0, "Confluent's wire format begins with a zero byte and the schema's id"
    assert registry.get_latest_version(f"{topic}-value").schema_id == int.from_bytes(raw[1][1:5], "big")
    values = {"key.deserializer": StringDeserializer(), "value.deserializer": deserializer}
    assert _read(DeserializingConsumer({**_group(bootstrap_servers, topic), **values}), topic) == ("k", value)


@pytest.mark.parametrize("kind", [_avro, _json])
def test_bytes_are_those_that_confluent_kafkas_context_gives(kind: Any, registry: SchemaRegistryClient) -> None:
    serializer, deserializer, value = kind(registry)
    contexts = (
        SerializationContext("t", MessageField.VALUE),
        confluent_kafka.serialization.SerializationContext("t", confluent_kafka.serialization.MessageField.VALUE),
    )
    ours, theirs = (serializer(value, context) for context in contexts)
    assert ours == theirs
    assert [deserializer(ours, context) for context in contexts] == [value, value]
    assert registry.get_subjects() == ["t-value"]


def test_an_object_that_does_not_fit_its_schema_is_not_sent(
    bootstrap_servers: str, registry: SchemaRegistryClient
) -> None:
    serializer = JSONSerializer(JSON, registry)
    with SerializingProducer({"bootstrap.servers": bootstrap_servers, "value.serializer": serializer}) as producer:
        with pytest.raises(ValueSerializationError, match="number"):
            producer.produce("never", value={"name": "Ada"})
        assert len(producer) == 0


def test_serializers_that_a_client_builds_end_with_it(bootstrap_servers: str) -> None:
    class Closed:
        def __init__(self, serde: Any) -> None:
            self.serde, self.closed, self.resolver = serde, 0, None

        def __call__(self, obj: Any, context: Any) -> Any:
            return self.serde(obj, context)

        def set_cluster_id_resolver(self, resolver: Any) -> None:
            self.resolver = resolver

        def close(self) -> None:
            self.closed += 1

    class Builder:
        def __init__(self, serde: Any) -> None:
            self.built = Closed(serde)

        def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
            assert conf.pop("own.setting") == 5
            assert not is_key
            return self.built, conf

    writer, reader = Builder(StringSerializer()), Builder(StringDeserializer())
    settings = {"bootstrap.servers": bootstrap_servers, "own.setting": 5, "value.serializer.builder": writer}
    with SerializingProducer(settings) as producer:
        producer.produce("built", value="x")
        assert writer.built.resolver() == producer.cluster_id()
    assert writer.built.closed == 1
    with pytest.raises(KafkaException, match="not both"):
        SerializingProducer({**settings, "value.serializer": StringSerializer()})
    group = {**_group(bootstrap_servers, "built"), "own.setting": 5, "value.deserializer.builder": reader}
    assert _read(DeserializingConsumer(group), "built") == (None, "x")
    assert reader.built.closed == 1


def test_builders_of_confluent_kafka_build(bootstrap_servers: str) -> None:
    url = {"url": "mock://builders"}
    writer = AvroSerializerBuilder().set_schema_registry_config(url).set_schema(AVRO)
    settings = {"bootstrap.servers": bootstrap_servers, "value.serializer.builder": writer}
    with SerializingProducer(settings) as producer:
        producer.produce("confluent-built", value=USER)
    reader = AvroDeserializerBuilder().set_schema_registry_config(url).set_schema(AVRO)
    group = {**_group(bootstrap_servers, "confluent-built"), "value.deserializer.builder": reader}
    with DeserializingConsumer(group) as consumer:
        consumer.subscribe(["confluent-built"])
        # The mock registry is each client's own, so the schema of the other one is unknown.
        with pytest.raises(ValueDeserializationError, match=r"404|not found|Schema"):
            consumer.poll(30)


def test_objects_come_back_in_an_event_loop(bootstrap_servers: str) -> None:
    async def run() -> tuple[Any, Any]:
        registry = AsyncSchemaRegistryClient.new_client({"url": "mock://"})
        settings = {"bootstrap.servers": bootstrap_servers, "key.serializer": StringSerializer()}
        serializer = await AsyncAvroSerializer(registry, AVRO)
        async with await AsyncSerializingProducer({**settings, "value.serializer": serializer}, max_workers=2) as p:
            delivered = await (await p.produce("async-avro", key="k", value=USER))
            assert delivered.topic() == "async-avro"
            with pytest.raises(ValueSerializationError):
                await p.produce("async-avro", value={"name": 5})
        deserializer = await AsyncAvroDeserializer(registry, AVRO)
        group = {**_group(bootstrap_servers, "async-avro"), "value.deserializer": deserializer}
        async with await AsyncDeserializingConsumer(group) as consumer:
            await consumer.subscribe(["async-avro"])
            message = await consumer.poll(30)
            assert message is not None
            return message.key(), message.value()

    assert asyncio.run(run()) == (b"k", USER)


def test_a_batch_in_an_event_loop_ends_before_what_does_not_decode(bootstrap_servers: str) -> None:
    def decode(value: bytes, context: Any) -> str:
        if value == b"bad":
            raise ValueError("bad")
        return value.decode()

    async def run() -> list[Any]:
        seen: list[Any] = []
        group = {**_group(bootstrap_servers, "bad-batch"), "value.deserializer": decode}
        async with await AsyncDeserializingConsumer(group) as consumer:
            await consumer.subscribe(["bad-batch"])
            while len(seen) < 4:
                try:
                    seen += [m.value() for m in await consumer.consume(10, 0.2)]
                except ValueDeserializationError as error:
                    seen.append(error.kafka_message.value())
        return seen

    with Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        for value in ("a", "b", "bad", "c"):
            producer.produce("bad-batch", value, partition=0)
    assert asyncio.run(run()) == ["a", "b", b"bad", "c"]


def test_former_avro_clients_still_work(bootstrap_servers: str) -> None:
    class Registry:
        """The calls of the former registry's client."""

        auto_register_schemas = True

        def __init__(self) -> None:
            self.schemas: dict[int, Any] = {}

        def register(self, subject: str, schema: Any) -> int:
            self.schemas[len(self.schemas) + 1] = schema
            return len(self.schemas)

        def get_by_id(self, schema_id: int) -> Any:
            return self.schemas[schema_id]

    registry = Registry()
    with pytest.warns(DeprecationWarning, match="AvroProducer"):
        producer = AvroProducer({"bootstrap.servers": bootstrap_servers}, schema_registry=registry)
    producer.produce(topic="former", value=USER, value_schema=loads(AVRO))
    producer.close()
    with pytest.warns(DeprecationWarning, match="AvroConsumer"):
        consumer = AvroConsumer(_group(bootstrap_servers, "former"), schema_registry=registry)
    assert _read(consumer, "former") == (None, USER)


def test_serializers_are_those_of_confluent_kafka() -> None:
    import confluent_kafka.schema_registry.avro

    assert AvroSerializer is confluent_kafka.schema_registry.avro.AvroSerializer
