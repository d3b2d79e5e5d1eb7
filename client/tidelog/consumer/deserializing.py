"""A consumer whose messages have objects for keys and values, in place of bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tidelog.consumer.consumer import Consumer
from tidelog.message import Message
from tidelog.serialization import (
    ConsumeError,
    KeyDeserializationError,
    MessageField,
    SerializationContext,
    ValueDeserializationError,
)

DeserializerFunction = Callable[[Any, SerializationContext], Any]


class DeserializingConsumer(Consumer):
    """confluent-kafka's class of the same name: ``key.deserializer`` and ``value.deserializer`` are among the settings.

    Each is called with the bytes, or None, and a :class:`~tidelog.serialization.SerializationContext`; without one the
    bytes stay as they are.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        """Read the settings; raises as :class:`Consumer`, and TypeError for a deserializer that cannot be called."""
        given = {**(config or {}), **{name.replace("_", ".", 1): settings.pop(name) for name in _named(settings)}}
        self._key_deserializer = _callable(given.pop("key.deserializer", None), "key.deserializer")
        self._value_deserializer = _callable(given.pop("value.deserializer", None), "value.deserializer")
        super().__init__(given, **settings)

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message, deserialized, or None after ``timeout`` seconds (-1: wait without end).

        Raises:
            ConsumeError: an event; ``kafka_message`` is what :meth:`Consumer.poll` would have returned.
            KeyDeserializationError, ValueDeserializationError: a deserializer raised ``exception``; the message is
                ``kafka_message``, as it was read, and the next call returns the one after it.
            KafkaException: _DESTROY when closed.
        """
        message = super().poll(timeout)
        return None if message is None else self._deserialize(message)

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> NoReturn:
        """Raise NotImplementedError, as confluent-kafka's: one message that fails would take others with it."""
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


def _named(settings: Mapping[str, Any]) -> list[str]:
    return [name for name in ("key_deserializer", "value_deserializer") if name in settings]


def _callable(function: Any, name: str) -> DeserializerFunction | None:
    if function is not None and not callable(function):
        raise TypeError(f"{name} must be callable, not {type(function).__name__}")
    found: DeserializerFunction | None = function
    return found
