"""What is raised when an object cannot become bytes, or bytes no object.

::

    TidelogError (= KafkaException)
    ├── SerializationError                what a serializer or deserializer raises
    ├── ProduceError
    │   ├── KeySerializationError         (also a SerializationError)
    │   └── ValueSerializationError       (also a SerializationError)
    └── ConsumeError
        ├── KeyDeserializationError       (also a SerializationError)
        └── ValueDeserializationError     (also a SerializationError)

As in ``confluent_kafka.error``: ``exception`` is what the serializer raised, ``kafka_message`` the record that was
read.
"""

from __future__ import annotations

from typing import Any

from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError


class SerializationError(TidelogError):
    """An object that cannot become bytes, or bytes that are not what they should be; may be raised with a sentence."""

    def __init__(self, error: KafkaError | ErrorCode | int | str, message: str | None = None) -> None:
        if isinstance(error, str):
            error = KafkaError(ErrorCode._INVALID_ARG, error)
        super().__init__(error, message)


class ProduceError(TidelogError):
    """``produce()`` could not take a record."""

    def __init__(self, error: KafkaError, exception: BaseException | None = None) -> None:
        super().__init__(error)
        self.exception = exception
        self.kafka_message = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (type(self), self.error, self.exception, None))


class ConsumeError(TidelogError):
    """A record that was read could not be handed to the application; it is ``kafka_message``."""

    def __init__(self, error: KafkaError, exception: BaseException | None = None, kafka_message: Any = None) -> None:
        super().__init__(error)
        self.exception = exception
        self.kafka_message = kafka_message

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restored, (type(self), self.error, self.exception, self.kafka_message))


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


def _restored(
    cls: type[ProduceError | ConsumeError], error: KafkaError, exception: BaseException | None, message: Any
) -> TidelogError:
    restored = cls.__new__(cls)
    TidelogError.__init__(restored, error)
    restored.exception = exception
    restored.kafka_message = message
    return restored
