"""Serializers and deserializers with confluent-kafka's names, for SerializingProducer and DeserializingConsumer."""

from tidelog.serialization.builders import DeserializerBuilder, SerializerBuilder
from tidelog.serialization.errors import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ProduceError,
    SerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from tidelog.serialization.primitives import (
    Deserializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JSONDeserializer,
    JSONSerializer,
    MessageField,
    SerializationContext,
    Serializer,
    StringDeserializer,
    StringSerializer,
)

__all__ = [
    "ConsumeError",
    "Deserializer",
    "DeserializerBuilder",
    "DoubleDeserializer",
    "DoubleSerializer",
    "IntegerDeserializer",
    "IntegerSerializer",
    "JSONDeserializer",
    "JSONSerializer",
    "KeyDeserializationError",
    "KeySerializationError",
    "MessageField",
    "ProduceError",
    "SerializationContext",
    "SerializationError",
    "Serializer",
    "SerializerBuilder",
    "StringDeserializer",
    "StringSerializer",
    "ValueDeserializationError",
    "ValueSerializationError",
]
