"""confluent-kafka's names and arguments for the asyncio clients, and its clients with serializers and deserializers."""

from __future__ import annotations

import asyncio
import inspect
import logging
import types
from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, Self

from tidelog.aio.consumer import Consumer
from tidelog.aio.producer import Producer
from tidelog.message import Message
from tidelog.producer.calls import HeadersArgument
from tidelog.serialization import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    MessageField,
    SerializationContext,
    ValueDeserializationError,
    ValueSerializationError,
)
from tidelog.serialization.builders import Serdes, build_serdes_awaited
from tidelog_foundation.errors import ErrorCode, error_for

logger = logging.getLogger(__name__)

_SIZES = "max_workers, executor, batch_size and buffer_timeout have no effect: asyncio's clients use no threads"
_told: set[str] = set()


class AIOProducer(Producer):
    """confluent-kafka's name of :class:`Producer`. It ignores the arguments that size confluent-kafka's thread pool."""

    def __init__(
        self,
        producer_conf: Mapping[str, Any],
        max_workers: int = 4,
        executor: object = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        """Create a producer from settings. Raise the errors of :class:`Producer`."""
        if (max_workers, executor, batch_size, buffer_timeout) != (4, None, 1000, 1.0):
            _tell_once(_SIZES)
        super().__init__(producer_conf)


class AIOConsumer(Consumer):
    """confluent-kafka's name of :class:`Consumer`. It ignores the arguments that size confluent-kafka's thread pool."""

    def __init__(self, consumer_conf: Mapping[str, Any], max_workers: int = 100, executor: object = None) -> None:
        """Create a consumer from settings. Raise the errors of :class:`Consumer`."""
        if (max_workers, executor) != (100, None):
            _tell_once(_SIZES)
        super().__init__(consumer_conf)


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        logger.warning("%s", text)


_RESOLVER = "set_async_cluster_id_resolver"


class _AwaitedClient:
    """A client that is made ready by awaiting it: first its serializers or deserializers, then the client itself.

    Mixed in before the client's class, whose settings and arguments it keeps until then.
    """

    _KIND: ClassVar[str]
    """The kind of converter in the settings: ``serializer`` or ``deserializer``."""
    __class_getitem__: ClassVar[Any] = classmethod(types.GenericAlias)

    cluster_id: Callable[..., Any]

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        """Keep the settings until the client is awaited; ``kwargs`` are those of the client's class."""
        self._conf, self._arguments = dict(conf), kwargs
        self._serdes = Serdes()
        self._is_ready = False

    def __await__(self) -> Generator[Any, None, Self]:
        return self._begin().__await__()

    async def _begin(self) -> Self:
        """Build the serdes and the client. Raise as the client's class."""
        if not self._is_ready:
            self._serdes, settings = await build_serdes_awaited(self._conf, self._KIND)
            try:
                super().__init__(settings, **self._arguments)  # type: ignore[call-arg]  # the client's class is next
            except BaseException:
                await self._serdes.close_awaited()
                raise
            self._is_ready = True
            self._serdes.resolve_cluster_id(self.cluster_id, _RESOLVER)
        return self


class AsyncSerializingProducer(_AwaitedClient, AIOProducer):
    """A producer with the settings ``key.serializer`` and ``value.serializer``, or builders instead.

    Serializers may be functions or coroutine functions. The producer closes the serializers that builders build.
    Builders may be asynchronous, so await the object before its first use: ``producer = await
    AsyncSerializingProducer(conf)``.
    """

    _KIND = "serializer"

    async def close(self, timeout: float = -1) -> int:  # noqa: ASYNC109
        """Close the producer as :meth:`tidelog.aio.Producer.close` does, then the serializers that were built."""
        left = await super().close(timeout) if self._is_ready else 0
        await self._serdes.close_awaited()
        return left

    async def produce(  # type: ignore[override]  # confluent-kafka's two classes have the two in different orders
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: HeadersArgument | None = None,
    ) -> asyncio.Future[Message]:
        """Serialize key and value and queue the record; return the future of its delivery.

        Raises:
            KeySerializationError, ValueSerializationError: a serializer raised; its exception is ``exception``.
            TypeError: the topic is not a string; also everything that :meth:`tidelog.aio.Producer.produce` raises.
        """
        if not self._is_ready:
            raise error_for(ErrorCode._STATE, "await the AsyncSerializingProducer before it is used")
        self._producer._lifetime.check()
        if not isinstance(topic, str):
            raise TypeError(f"topic must be text, not {type(topic).__name__}")
        context = SerializationContext(topic, MessageField.KEY, headers)
        key = await _called(self._serdes.key, key, context, KeySerializationError)
        context.field = MessageField.VALUE
        value = await _called(self._serdes.value, value, context, ValueSerializationError)
        return await super().produce(topic, value, key, partition, None, timestamp, headers)


class AsyncDeserializingConsumer(_AwaitedClient, AIOConsumer):
    """A consumer with the settings ``key.deserializer`` and ``value.deserializer``, or builders instead.

    Deserializers may be functions or coroutine functions. The consumer closes the deserializers that builders build.
    Await the object before its first use: ``consumer = await AsyncDeserializingConsumer(conf)``.
    """

    _KIND = "deserializer"

    async def close(self) -> None:
        """Close the consumer as :meth:`tidelog.aio.Consumer.close` does, then the deserializers that were built."""
        if self._is_ready:
            await super().close()
        await self._serdes.close_awaited()

    async def poll(self, timeout: float | None = -1) -> Message | None:  # noqa: ASYNC109
        """Return the next message, deserialized, or None after ``timeout`` seconds (-1: wait forever).

        Raises:
            ConsumeError: an event; ``kafka_message`` is the result that the consumer would have returned.
            KeyDeserializationError, ValueDeserializationError: a deserializer raised ``exception``. ``kafka_message``
                is the message as it was read, and the next call returns the one after it.
        """
        # The base's poll() calls consume(), which deserializes too.
        messages = await super().consume(1, timeout)
        if not messages:
            return None
        message = messages[0]
        error = message.error()
        if error is not None:
            raise ConsumeError(error, kafka_message=message)
        return await self._deserialize(message)

    async def consume(self, num_messages: int = 1, timeout: float | None = -1) -> list[Message]:  # noqa: ASYNC109
        """Return up to ``num_messages`` deserialized messages, with events unchanged among them.

        If a message cannot be deserialized, return the messages before it; the next call raises.

        Raises:
            KeyDeserializationError, ValueDeserializationError: see :meth:`poll`; the next call returns the messages
                after it.
        """
        messages = await super().consume(num_messages, timeout)
        for index, message in enumerate(messages):
            try:
                if message.error() is None:
                    await self._deserialize(message)
            except ConsumeError:
                if index:
                    self._consumer._unread_messages(messages[index:])
                    return messages[:index]
                self._consumer._unread_messages(messages[1:])
                raise
        return messages

    async def _deserialize(self, message: Message) -> Message:
        topic = message.topic()
        assert topic is not None
        context = SerializationContext(topic, MessageField.KEY, message.headers())
        key = await _called(self._serdes.key, message.key(), context, KeyDeserializationError, message)
        context.field = MessageField.VALUE
        value = await _called(self._serdes.value, message.value(), context, ValueDeserializationError, message)
        message.set_key(key)
        message.set_value(value)
        return message


async def _called(
    serde: Any, what: Any, context: SerializationContext, failure: Callable[..., Exception], *more: Message
) -> Any:
    """Return what the serde makes of an object; raise ``failure`` with the serde's exception and ``more``."""
    if serde is None:
        return what
    try:
        outcome = serde(what, context)
        return await outcome if inspect.isawaitable(outcome) else outcome
    except Exception as error:
        raise failure(error, *more) from error
