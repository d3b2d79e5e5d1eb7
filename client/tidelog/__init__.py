"""Tidelog's client SDK: produce, consume and administer, with confluent-kafka's names.

Clients load on first use: a program that needs one of them, or only ``tidelog.v1``, imports nothing else.
"""

import importlib
from os import environ as _environ
from typing import TYPE_CHECKING

from tidelog_foundation.errors import KafkaError, KafkaException, TidelogError

if TYPE_CHECKING:
    from tidelog.admin import (
        AdminClient,
        ConsumerGroupState,
        ConsumerGroupTopicPartitions,
        ConsumerGroupType,
        ElectionType,
        IsolationLevel,
        NewTopic,
        Node,
        TopicCollection,
        TopicPartitionInfo,
    )
    from tidelog.consumer import Consumer, DeserializingConsumer
    from tidelog.message import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        OFFSET_STORED,
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        Message,
        ThrottleEvent,
        TopicPartition,
    )
    from tidelog.producer import Producer, SerializingProducer
    from tidelog.producer.partitions import consistent, fnv1a, murmur2
    from tidelog.release import libversion, version
    from tidelog.serialization import (
        DoubleDeserializer,
        DoubleSerializer,
        IntegerDeserializer,
        IntegerSerializer,
        JSONDeserializer,
        JSONSerializer,
        MessageField,
        SerializationContext,
        SerializationError,
        StringDeserializer,
        StringSerializer,
    )
    from tidelog.uuid import Uuid

__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AdminClient",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "DoubleDeserializer",
    "DoubleSerializer",
    "ElectionType",
    "IntegerDeserializer",
    "IntegerSerializer",
    "IsolationLevel",
    "JSONDeserializer",
    "JSONSerializer",
    "KafkaError",
    "KafkaException",
    "Message",
    "MessageField",
    "NewTopic",
    "Node",
    "Producer",
    "SerializationContext",
    "SerializationError",
    "SerializingProducer",
    "StringDeserializer",
    "StringSerializer",
    "ThrottleEvent",
    "TidelogError",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "consistent",
    "fnv1a",
    "libversion",
    "murmur2",
    "version",
]

_NAMES = {
    "tidelog.admin": "AdminClient ConsumerGroupState ConsumerGroupTopicPartitions ConsumerGroupType ElectionType"
    " IsolationLevel NewTopic Node TopicCollection TopicPartitionInfo",
    "tidelog.consumer": "Consumer DeserializingConsumer",
    "tidelog.producer": "Producer SerializingProducer",
    "tidelog.producer.partitions": "consistent fnv1a murmur2",
    "tidelog.release": "libversion version",
    "tidelog.serialization": "DoubleDeserializer DoubleSerializer IntegerDeserializer IntegerSerializer"
    " JSONDeserializer JSONSerializer MessageField SerializationContext SerializationError StringDeserializer"
    " StringSerializer",
    "tidelog.uuid": "Uuid",
}
"""The names of each module; the others are in :mod:`tidelog.message`."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_SUBMODULES = frozenset(("admin", "aio", "cimpl", "deserializing_consumer", "error", "serializing_producer"))
"""Submodules that are attributes of the package on import, as in confluent-kafka."""


def __getattr__(name: str) -> object:
    # gRPC's documented default: some versions log connections that end normally. gRPC reads it on its first import;
    # servers and the command line set an even quieter level earlier.
    _environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if name == "__version__":
        return importlib.import_module("tidelog.release").version()
    if name in _SUBMODULES:
        return importlib.import_module(f"tidelog.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES.get(name, "tidelog.message")), name)
    globals()[name] = value
    return value
