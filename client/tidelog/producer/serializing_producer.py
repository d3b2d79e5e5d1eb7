"""confluent-kafka's SerializingProducer: a Producer that makes the bytes of keys and values itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.errors import ConfigError
from tidelog.producer.calls import HeadersArgument
from tidelog.producer.core import DeliveryCallback
from tidelog.producer.producer import Producer
from tidelog.serialization import (
    KeySerializationError,
    MessageField,
    SerializationContext,
    ValueSerializationError,
)

SerializerCall = Callable[[Any, SerializationContext], bytes | str | None]


class SerializingProducer(Producer):
    """A :class:`Producer` with two more settings: ``key.serializer`` and ``value.serializer``.

    Each is a callable ``(obj, SerializationContext) -> bytes | None``, as those of :mod:`tidelog.serialization`.
    Without one, what is given is sent as it is. ``produce_batch()`` takes bytes and calls no serializer.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Read the settings.

        Raises:
            KafkaException: INVALID_CONFIG, also for a serializer that cannot be called.
        """
        settings = dict(config or {})
        self._key_serializer = _serializer(settings, "key.serializer")
        self._value_serializer = _serializer(settings, "value.serializer")
        super().__init__(settings, **more)

    def produce(  # type: ignore[override]  # confluent-kafka's two classes have the two in different orders
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: HeadersArgument | None = None,
        *,
        callback: DeliveryCallback | None = None,
    ) -> None:
        """Serialize key and value, then take the record as :meth:`Producer.produce` does, which has the value first.

        Serializers may have effects, so a producer that is closed refuses the record before it calls them.

        Raises:
            KeySerializationError: the key's serializer raised; its exception is ``exception``.
            ValueSerializationError: the value's did.
            TypeError: the topic is not text; and all that :meth:`Producer.produce` raises.
        """
        self._lifetime.check()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be text, not {type(topic).__name__}")
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(topic, value, key, partition, on_delivery, timestamp, headers, callback=callback)


def _serializer(settings: dict[str, Any], key: str) -> SerializerCall | None:
    serializer: Any = settings.pop(key, None)
    if serializer is not None and not callable(serializer):
        kind = type(serializer).__name__
        raise ConfigError(f'invalid value for configuration "{key}": must be callable, not {kind}')
    found: SerializerCall | None = serializer
    return found
