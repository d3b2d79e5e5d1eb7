"""confluent-kafka's former AvroProducer and AvroConsumer, for programs that still use them.

They require the extra ``schema-registry``. New programs use :mod:`tidelog.schema_registry.avro`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tidelog.avro.cached_schema_registry_client import CachedSchemaRegistryClient
from tidelog.avro.error import ClientError
from tidelog.avro.serializer import KeySerializerError, SerializerError, ValueSerializerError
from tidelog.consumer import Consumer
from tidelog.message import Message
from tidelog.producer import Producer
from tidelog.schema_registry.extra import schema_registry_extra

with schema_registry_extra(__name__):
    from confluent_kafka.avro.serializer.message_serializer import MessageSerializer

__all__ = ["AvroConsumer", "AvroProducer", "MessageSerializer"]

_REGISTRY = "schema.registry."


class AvroProducer(Producer):
    """A producer of Avro, with default schemas or schemas per :meth:`produce`. Deprecated: use AvroSerializer."""

    def __init__(
        self,
        config: Mapping[str, Any],
        default_key_schema: Any = None,
        default_value_schema: Any = None,
        schema_registry: Any = None,
        **kwargs: Any,
    ) -> None:
        """Create a producer; settings that begin with ``schema.registry.`` belong to the registry.

        Raises:
            KafkaException: INVALID_CONFIG.
            ValueError: both ``schema_registry`` and ``schema.registry.url`` are given.
        """
        warnings.warn("AvroProducer is deprecated: use AvroSerializer", DeprecationWarning, stacklevel=2)
        registry, settings = _registry(config, schema_registry)
        super().__init__(settings, **kwargs)
        self._avro = MessageSerializer(registry)
        self._key_schema = default_key_schema
        self._value_schema = default_value_schema

    def produce(self, **kwargs: Any) -> None:  # type: ignore[override]  # confluent-kafka's takes keywords alone
        """Serialize and produce ``value`` and ``key``; other arguments are those of :meth:`Producer.produce`.

        Raises:
            ClientError: the topic is missing.
            SerializerError: a schema is missing, or an object does not match its schema.
        """
        key_schema = kwargs.pop("key_schema", self._key_schema)
        value_schema = kwargs.pop("value_schema", self._value_schema)
        topic, value, key = (kwargs.pop(name, None) for name in ("topic", "value", "key"))
        if not topic:
            raise ClientError("Topic name not specified.")
        if value is not None:
            value = self._encode(topic, value_schema, value, ValueSerializerError("Avro schema required for values"))
        if key is not None:
            key = self._encode(topic, key_schema, key, KeySerializerError("Avro schema required for key"), is_key=True)
        super().produce(topic, value, key, **kwargs)

    def _encode(self, topic: str, schema: Any, obj: Any, failure: SerializerError, *, is_key: bool = False) -> Any:
        if not schema:
            raise failure
        return self._avro.encode_record_with_schema(topic, schema, obj, is_key)


class AvroConsumer(Consumer):
    """A consumer of Avro. Deprecated: use AvroDeserializer."""

    def __init__(
        self,
        config: Mapping[str, Any],
        schema_registry: Any = None,
        reader_key_schema: Any = None,
        reader_value_schema: Any = None,
        **kwargs: Any,
    ) -> None:
        """Create a consumer from settings as in :class:`AvroProducer`."""
        warnings.warn("AvroConsumer is deprecated: use AvroDeserializer", DeprecationWarning, stacklevel=2)
        registry, settings = _registry(config, schema_registry)
        super().__init__(settings, **kwargs)
        self._avro = MessageSerializer(registry, reader_key_schema, reader_value_schema)

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next message with decoded key and value, or None after ``timeout`` seconds.

        Raises:
            SerializerError: the message cannot be decoded; the next call returns the one after it.
        """
        message = super().poll(timeout)
        if message is None or message.error():
            return message
        try:
            if message.value() is not None:
                message.set_value(self._avro.decode_message(message.value(), is_key=False))
            if message.key() is not None:
                message.set_key(self._avro.decode_message(message.key(), is_key=True))
        except SerializerError as error:
            where = f"{message.topic()} [{message.partition()}] offset {message.offset()}"
            raise SerializerError(f"Message deserialization failed for message at {where}: {error}") from error
        return message


def _registry(config: Mapping[str, Any], given: Any) -> tuple[Any, dict[str, Any]]:
    """Return the registry's client, and the settings without the registry's."""
    own = {key.removeprefix(_REGISTRY): value for key, value in config.items() if key.startswith(_REGISTRY)}
    if given is not None and own.get("url") is not None:
        raise ValueError("Cannot pass schema_registry along with schema.registry.url config")
    settings = {key: value for key, value in config.items() if not key.startswith(_REGISTRY)}
    return (CachedSchemaRegistryClient(own) if given is None else given), settings
