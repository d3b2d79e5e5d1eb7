"""The names of ``confluent_kafka.error``; :mod:`tidelog_foundation.errors` has all of Tidelog's errors."""

from tidelog.serialization import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ProduceError,
    SerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from tidelog_foundation.errors import KafkaError, KafkaException

__all__ = [
    "ConsumeError",
    "KafkaError",
    "KafkaException",
    "KeyDeserializationError",
    "KeySerializationError",
    "ProduceError",
    "SerializationError",
    "ValueDeserializationError",
    "ValueSerializationError",
]
