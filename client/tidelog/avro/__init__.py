"""confluent-kafka's former package for Avro; new programs use :mod:`tidelog.schema_registry.avro`."""

from tidelog.avro.cached_schema_registry_client import CachedSchemaRegistryClient
from tidelog.avro.clients import AvroConsumer, AvroProducer, MessageSerializer
from tidelog.avro.error import ClientError
from tidelog.avro.load import load, loads
from tidelog.avro.serializer import KeySerializerError, SerializerError, ValueSerializerError
from tidelog.consumer import Consumer
from tidelog.producer import Producer

__all__ = [
    "AvroConsumer",
    "AvroProducer",
    "CachedSchemaRegistryClient",
    "ClientError",
    "Consumer",
    "KeySerializerError",
    "MessageSerializer",
    "Producer",
    "SerializerError",
    "ValueSerializerError",
    "load",
    "loads",
]
