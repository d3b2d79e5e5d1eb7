"""Errors of serialization and deserialization.

::

    TidelogError (= KafkaException)
    ├── SerializationError                raised by a serializer or deserializer
    ├── ProduceError
    │   ├── KeySerializationError         (also a SerializationError)
    │   └── ValueSerializationError       (also a SerializationError)
    └── ConsumeError
        ├── KeyDeserializationError       (also a SerializationError)
        └── ValueDeserializationError     (also a SerializationError)

As in ``confluent_kafka.error``, ``exception`` is the serializer's exception, and ``kafka_message`` the consumed record.
"""

from __future__ import annotations

from typing import Any

from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError


class SerializationError(TidelogError):
    """An object that cannot be serialized, or bytes that cannot be deserialized. It accepts a plain message."""

    def __init__(self, error: KafkaError | ErrorCode | int | str, message: str | None = None) -> None:
        if isinstance(error, str):
            error = KafkaError(ErrorCode._INVALID_ARG, error)
        super().__init__(error, message)


class _SerdeError(TidelogError):
    """The part common to both directions: ``exception`` and ``kafka_message``, which survive pickling."""

    def __init__(self, error: KafkaError, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        super().__init__(error)
        self.exception = exception
        self.kafka_message = kafka_message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (type(self), self.error, self.exception, self.kafka_message))


class ProduceError(_SerdeError):
    """The failure of ``produce()`` to accept a record."""

    def __init__(self, error: KafkaError, exception: BaseException | None = None) -> None:
        super().__init__(error, exception)


class ConsumeError(_SerdeError):
    """The failure to return a consumed record, ``kafka_message``."""


class KeySerializationError(ProduceError, SerializationError):
    """The key's serializer raised ``exception`` (_KEY_SERIALIZATION)."""

    def __init__(self, exception: BaseException | None = None) -> None:
        ProduceError.__init__(self, KafkaError(ErrorCode._KEY_SERIALIZATION, str(exception)), exception)


class ValueSerializationError(ProduceError, SerializationError):
    """The value's serializer raised ``exception`` (_VALUE_SERIALIZATION)."""

    def __init__(self, exception: BaseException | None = None) -> None:
        ProduceError.__init__(self, KafkaError(ErrorCode._VALUE_SERIALIZATION, str(exception)), exception)


class KeyDeserializationError(ConsumeError, SerializationError):
    """The key's deserializer raised ``exception`` (_KEY_DESERIALIZATION)."""

    def __init__(self, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        error = KafkaError(ErrorCode._KEY_DESERIALIZATION, str(exception))
        ConsumeError.__init__(self, error, exception, kafka_message)


class ValueDeserializationError(ConsumeError, SerializationError):
    """The value's deserializer raised ``exception`` (_VALUE_DESERIALIZATION)."""

    def __init__(self, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        error = KafkaError(ErrorCode._VALUE_DESERIALIZATION, str(exception))
        ConsumeError.__init__(self, error, exception, kafka_message)


def _restored(cls: type[_SerdeError], error: KafkaError, exception: BaseException | None, message: Any) -> _SerdeError:
    restored = cls.__new__(cls)
    _SerdeError.__init__(restored, error, exception, message)
    return restored
