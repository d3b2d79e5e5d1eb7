"""confluent-kafka's SerializingProducer: a Producer that makes the bytes of keys and values itself."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, ClassVar

from tidelog.producer.calls import HeadersArgument
from tidelog.producer.core import DeliveryCallback
from tidelog.producer.producer import Producer
from tidelog.serialization import (
    KeySerializationError,
    MessageField,
    SerializationContext,
    ValueSerializationError,
)
from tidelog.serialization.builders import CLUSTER_ID_TIMEOUT_S, build_serdes


class SerializingProducer(Producer):
    """A :class:`Producer` with more settings: ``key.serializer``, ``value.serializer``, and builders in their place.

    Each serializer is a callable ``(obj, SerializationContext) -> bytes | None``, as those of
    :mod:`tidelog.serialization`. Without one, what is given is sent as it is. ``key.serializer.builder`` and
    ``value.serializer.builder`` are objects with ``build(settings, is_key)`` (SerializerBuilder); what they build is
    closed with the producer. ``produce_batch()`` takes bytes and calls no serializer.
    """

    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Read the settings.

        Raises:
            KafkaException: INVALID_CONFIG, also for a serializer that cannot be called.
        """
        self._serdes, settings = build_serdes(dict(config or {}), "serializer")
        try:
            super().__init__(settings, **more)
        except BaseException:
            self._serdes.close()
            raise
        self._key_serializer = self._serdes.key
        self._value_serializer = self._serdes.value
        self._serdes.resolve_cluster_id(functools.partial(self.cluster_id, CLUSTER_ID_TIMEOUT_S))

    def close(self, timeout: float = -1) -> int:
        """Close as :meth:`Producer.close` does, then the serializers that were built."""
        left = super().close(timeout)
        self._serdes.close()
        return left

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
