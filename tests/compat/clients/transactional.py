"""The transactional producers of the clients that have them, behind one interface."""

from __future__ import annotations

import asyncio
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
from compat.clients.client import DEADLINE_S, wait_for
from compat.clients.java import gateway, properties
from compat.clients.librdkafka import dotted
from kafka.structs import OffsetAndMetadata

import tidelog
import tidelog.aio

Offsets = Mapping[tuple[str, int], int]
POLL_MS = 100
_FLUSH_S = 15
"""Of kafka-python, which may send nothing more after it has lost the connection to a leader."""


class TransactionalProducer(ABC):
    """A producer with a transactional id; a context manager."""

    @abstractmethod
    def init(self) -> None:
        """Fence the older producers of the transactional id, before all else."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def send(self, topic: str, value: bytes, partition: int) -> None:
        """Write a record, and return before it is acknowledged."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until all records are acknowledged; the client's own error for one that is not."""

    @abstractmethod
    def send_offsets(self, group: str, offsets: Offsets, member: Any = None) -> None:
        """Commit offsets of a group with the transaction: for a :meth:`former_member`, or for none."""

    @abstractmethod
    def former_member(self, group: str, topic: str) -> Any:
        """Return the client's description of a member that has joined a group, and left it."""

    @abstractmethod
    def commit(self) -> None:
        """Commit the transaction."""

    @abstractmethod
    def abort(self) -> None:
        """Abort the transaction."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources, whatever state the producer is in."""

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ConfluentTransactional(TransactionalProducer):
    """Of confluent-kafka, or of our own client, which has the same interface."""

    def __init__(self, module: str, servers: str, transactional_id: str, config: dict[str, Any]) -> None:
        self._library = importlib.import_module(module)
        self._servers = {"bootstrap.servers": servers}
        self._producer = self._library.Producer({**self._servers, "transactional.id": transactional_id, **config})
        self._errors: list[Any] = []

    def init(self) -> None:
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._producer.produce(topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: Any, message: object) -> None:
        if error is not None:
            self._errors.append(error)

    def flush(self) -> None:
        # flush() of confluent-kafka raises SystemError when the producer is fenced meanwhile.
        wait_for(lambda: self._producer.poll(0.05) >= 0 and not len(self._producer), "all records to be acknowledged")
        if self._errors:
            raise self._library.KafkaException(self._errors.pop())

    def send_offsets(self, group: str, offsets: Offsets, member: Any = None) -> None:
        positions = [self._library.TopicPartition(*place, offset) for place, offset in offsets.items()]
        if member is None:
            with self._consumer(group) as consumer:
                member = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, member, DEADLINE_S)

    def former_member(self, group: str, topic: str) -> Any:
        with self._consumer(group) as consumer:
            consumer.subscribe([topic])
            wait_for(lambda: consumer.poll(0.1) is None and consumer.assignment(), f"a member of {group}")
            return consumer.consumer_group_metadata()

    def _consumer(self, group: str) -> Any:
        return self._library.Consumer({**self._servers, "group.id": group, "enable.auto.commit": False})

    def commit(self) -> None:
        self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        self._producer.purge()


class KafkaPythonTransactional(TransactionalProducer):
    def __init__(self, servers: str, transactional_id: str, config: dict[str, Any]) -> None:
        self._servers = servers.split(",")
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=self._servers, transactional_id=transactional_id, **config
        )
        self._futures: list[Any] = []

    def init(self) -> None:
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._futures.append(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._producer.flush(_FLUSH_S)
        futures, self._futures = self._futures, []
        for future in futures:
            future.get(_FLUSH_S)

    def send_offsets(self, group: str, offsets: Offsets, member: Any = None) -> None:
        positions = {
            kafka.TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(positions, member or group)

    def former_member(self, group: str, topic: str) -> Any:
        consumer = kafka.KafkaConsumer(topic, bootstrap_servers=self._servers, group_id=group, enable_auto_commit=False)
        try:
            wait_for(lambda: consumer.poll(POLL_MS) == {} and consumer.assignment(), f"a member of {group}")
            return consumer.group_metadata()
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AiokafkaTransactional(TransactionalProducer):
    """Its event loop runs while it is asked for something."""

    def __init__(self, servers: str, transactional_id: str, config: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        # A fenced producer leaves futures with errors that nobody reads, which asyncio would print.
        self._loop.set_exception_handler(lambda loop, context: None)
        self._futures: list[asyncio.Future[Any]] = []
        self._producer = self._run(self._made(servers, transactional_id, config))

    async def _made(self, servers: str, transactional_id: str, config: dict[str, Any]) -> aiokafka.AIOKafkaProducer:
        return aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id, **config)

    def init(self) -> None:
        self._run(self._producer.start())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._futures.append(self._run(self._producer.send(topic, value, partition=partition)))

    def flush(self) -> None:
        futures, self._futures = self._futures, []
        self._run(_all(futures))

    def send_offsets(self, group: str, offsets: Offsets, member: Any = None) -> None:
        positions = {aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def former_member(self, group: str, topic: str) -> Any:
        raise NotImplementedError("aiokafka sends the name of a group alone")

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        except aiokafka.errors.KafkaError:
            pass  # A producer that is fenced says so once more.
        finally:
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, DEADLINE_S))


async def _all(futures: list[asyncio.Future[Any]]) -> None:
    await asyncio.gather(*futures)


class TidelogAio(TransactionalProducer):
    """Of our own client's asyncio interface. Its event loop runs while it is asked for something."""

    def __init__(self, servers: str, transactional_id: str, config: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        # A fenced producer leaves futures with errors that nobody reads, which asyncio would print.
        self._loop.set_exception_handler(lambda loop, context: None)
        self._futures: list[asyncio.Future[Any]] = []
        self._servers = {"bootstrap.servers": servers}
        self._producer = self._run(self._made({**self._servers, "transactional.id": transactional_id, **config}))

    async def _made(self, settings: dict[str, Any]) -> tidelog.aio.Producer:
        return tidelog.aio.Producer(settings)

    def init(self) -> None:
        self._run(self._producer.init_transactions(DEADLINE_S))

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._futures.append(self._run(self._producer.produce(topic, value, partition=partition)))

    def flush(self) -> None:
        futures, self._futures = self._futures, []
        self._run(_all(futures))

    def send_offsets(self, group: str, offsets: Offsets, member: Any = None) -> None:
        self._run(self._send_offsets(group, offsets, member))

    async def _send_offsets(self, group: str, offsets: Offsets, member: Any) -> None:
        positions = [tidelog.TopicPartition(*place, offset) for place, offset in offsets.items()]
        if member is None:
            async with self._consumer(group) as consumer:
                member = await consumer.consumer_group_metadata()
        await self._producer.send_offsets_to_transaction(positions, member, DEADLINE_S)

    def former_member(self, group: str, topic: str) -> Any:
        return self._run(self._former_member(group, topic))

    async def _former_member(self, group: str, topic: str) -> Any:
        async with self._consumer(group) as consumer:
            await consumer.subscribe([topic])
            while await consumer.poll(0.1) is not None or not await consumer.assignment():
                pass
            return await consumer.consumer_group_metadata()

    def _consumer(self, group: str) -> tidelog.aio.Consumer:
        return tidelog.aio.Consumer({**self._servers, "group.id": group, "enable.auto.commit": False})

    def commit(self) -> None:
        self._run(self._producer.commit_transaction(DEADLINE_S))

    def abort(self) -> None:
        self._run(self._producer.abort_transaction(DEADLINE_S))

    def close(self) -> None:
        try:
            self._run(self._producer.close(0))
        finally:
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, 2 * DEADLINE_S))


class JavaTransactional(TransactionalProducer):
    def __init__(self, servers: str, transactional_id: str, config: dict[str, Any]) -> None:
        self._jvm = gateway().jvm
        self._clients = self._jvm.org.apache.kafka.clients
        self._common = self._jvm.org.apache.kafka.common
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        settings = {"key.serializer": serializer, "value.serializer": serializer, "transactional.id": transactional_id}
        self._servers = servers
        self._producer = self._clients.producer.KafkaProducer(properties(servers, {**settings, **config}))
        self._futures: list[Any] = []

    def init(self) -> None:
        self._producer.initTransactions()

    def begin(self) -> None:
        self._producer.beginTransaction()

    def send(self, topic: str, value: bytes, partition: int) -> None:
        self._futures.append(self._producer.send(self._clients.producer.ProducerRecord(topic, partition, None, value)))

    def flush(self) -> None:
        self._producer.flush()
        futures, self._futures = self._futures, []
        for future in futures:
            future.get()

    def send_offsets(self, group: str, offsets: Offsets, member: Any = None) -> None:
        positions = self._jvm.java.util.HashMap()
        for (topic, partition), offset in offsets.items():
            at = self._common.TopicPartition(topic, partition)
            positions.put(at, self._clients.consumer.OffsetAndMetadata(offset))
        if member is None:
            member = self._clients.consumer.ConsumerGroupMetadata(group)
        self._producer.sendOffsetsToTransaction(positions, member)

    def former_member(self, group: str, topic: str) -> Any:
        name = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {
            "key.deserializer": name,
            "value.deserializer": name,
            "group.id": group,
            "enable.auto.commit": False,
        }
        consumer = self._clients.consumer.KafkaConsumer(properties(self._servers, settings))
        topics = self._jvm.java.util.ArrayList()
        topics.add(topic)
        consumer.subscribe(topics)
        try:
            interval = self._jvm.java.time.Duration.ofMillis(POLL_MS)
            wait_for(lambda: consumer.poll(interval).isEmpty() and consumer.assignment(), f"a member of {group}")
            return consumer.groupMetadata()
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commitTransaction()

    def abort(self) -> None:
        self._producer.abortTransaction()

    def close(self) -> None:
        self._producer.close(self._jvm.java.time.Duration.ofSeconds(1))


SDK, SDK_AIO = "tidelog", "tidelog.aio"
OURS = (SDK, SDK_AIO)
"""The clients of our own protocol."""
_MAKE: dict[str, Callable[[str, str, dict[str, Any]], TransactionalProducer]] = {
    "confluent-kafka": lambda *given: _confluent("confluent_kafka", *given),
    "kafka-python": KafkaPythonTransactional,
    "aiokafka": AiokafkaTransactional,
    "java": lambda servers, owner, config: JavaTransactional(servers, owner, dotted(config)),
    SDK: lambda *given: _confluent("tidelog", *given),
    SDK_AIO: lambda servers, owner, config: TidelogAio(servers, owner, dotted(config)),
}
WRITERS = tuple(_MAKE)
"""The clients that have transactions."""


def _confluent(module: str, servers: str, transactional_id: str, config: dict[str, Any]) -> TransactionalProducer:
    return ConfluentTransactional(module, servers, transactional_id, dotted(config))


def transactional(name: str, servers: str, transactional_id: str, **config: Any) -> TransactionalProducer:
    """Return a client's producer, before it has spoken; ``config`` are properties of Kafka with underscores."""
    return _MAKE[name](servers, transactional_id, config)


def said(error: BaseException) -> str:
    """Return the name of a client's error: the code of librdkafka and ours, the class of the others."""
    if hasattr(error, "java_exception"):
        raised = error.java_exception
        while raised.getClass().getSimpleName() == "ExecutionException":
            raised = raised.getCause()
        return str(raised.getClass().getSimpleName())
    code = error.args[0] if error.args else None
    return str(code.name()) if hasattr(code, "name") else type(error).__name__
