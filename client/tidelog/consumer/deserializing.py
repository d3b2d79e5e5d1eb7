"""A consumer whose messages have deserialized keys and values."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

from tidelog.consumer.consumer import Consumer
from tidelog.message import Message
from tidelog.serialization import (
    ConsumeError,
    KeyDeserializationError,
    MessageField,
    SerializationContext,
    ValueDeserializationError,
)
from tidelog.serialization.builders import CLUSTER_ID_TIMEOUT_S, build_serdes


class DeserializingConsumer(Consumer):
    """A consumer with the settings ``key.deserializer`` and ``value.deserializer``, as in confluent-kafka.

    ``key.deserializer.builder`` and ``value.deserializer.builder`` (DeserializerBuilder) can replace them; the consumer
    closes the deserializers that they build. Each deserializer is called with the bytes, or None, and a
    :class:`~tidelog.serialization.SerializationContext`. Without a deserializer, the bytes are returned unchanged.
    """

    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Create a consumer from settings.

        Raises:
            KafkaException: INVALID_CONFIG, also for a deserializer that is not callable.
        """
        named = [name for name in ("key_deserializer", "value_deserializer") if name in settings]
        given = {**(config or {}), **{name.replace("_", ".", 1): settings.pop(name) for name in named}}
        self._serdes, given = build_serdes(given, "deserializer")
        try:
            super().__init__(given, **settings)
        except BaseException:
            self._serdes.close()
            raise
        self._key_deserializer = self._serdes.key
        self._value_deserializer = self._serdes.value
        self._serdes.resolve_cluster_id(functools.partial(self.cluster_id, CLUSTER_ID_TIMEOUT_S))

    def close(self) -> None:
        """Close the consumer as :meth:`Consumer.close` does, then the deserializers that were built."""
        super().close()
        self._serdes.close()

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message, deserialized, or None after ``timeout`` seconds (-1: wait forever).

        Raises:
            ConsumeError: an event; ``kafka_message`` is the result that :meth:`Consumer.poll` would have returned.
            KeyDeserializationError, ValueDeserializationError: a deserializer raised ``exception``. ``kafka_message``
                is the message as it was read, and the next call returns the one after it.
            KafkaException: _DESTROY if closed.
        """
        message = super().poll(timeout)
        return None if message is None else self._deserialize(message)

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> NoReturn:
        """Raise NotImplementedError, as in confluent-kafka: one failing message would lose the others."""
        raise NotImplementedError("use poll(): a message that cannot be deserialized would take others with it")

    def _deserialize(self, message: Message) -> Message:
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        topic = message.topic()
        assert topic is not None
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        try:
            key = key if self._key_deserializer is None else self._key_deserializer(key, context)
        except Exception as failure:
            raise KeyDeserializationError(failure, message) from failure
        context.field = MessageField.VALUE
        try:
            value = value if self._value_deserializer is None else self._value_deserializer(value, context)
        except Exception as failure:
            raise ValueDeserializationError(failure, message) from failure
        message.set_key(key)
        message.set_value(value)
        return message
