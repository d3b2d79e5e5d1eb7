"""confluent-kafka's SerializingProducer: a Producer that serializes keys and values."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any, ClassVar

from tidelog.producer.calls import HeadersArgument
from tidelog.producer.core.batch import DeliveryCallback
from tidelog.producer.producer import Producer
from tidelog.serialization import KeySerializationError, MessageField, SerializationContext, ValueSerializationError
from tidelog.serialization.builders import CLUSTER_ID_TIMEOUT_S, build_serdes


class SerializingProducer(Producer):
    """A :class:`Producer` with the settings ``key.serializer`` and ``value.serializer``, or builders in their place.

    Each serializer is a callable ``(obj, SerializationContext) -> bytes | None``, such as those in
    :mod:`tidelog.serialization`. Without one, the argument is sent unchanged. ``key.serializer.builder`` and
    ``value.serializer.builder`` are objects with ``build(settings, is_key)`` (SerializerBuilder); the producer closes
    the serializers that they build. ``produce_batch()`` takes bytes and calls no serializer.
    """

    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)

    def __init__(self, config: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Create a producer from settings.

        Raises:
            KafkaException: INVALID_CONFIG, also for a serializer that is not callable.
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
        """Close the producer as :meth:`Producer.close` does, then the serializers that were built."""
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
        """Serialize key and value, then queue the record as :meth:`Producer.produce` does, which takes the value first.

        Serializers may have side effects, so a closed producer raises before it calls them.

        Raises:
            KeySerializationError: the key's serializer raised ``exception``.
            ValueSerializationError: the value's serializer raised ``exception``.
            TypeError: the topic is not text; also all errors of :meth:`Producer.produce`.
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
