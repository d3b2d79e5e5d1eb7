"""The client of both clusters: confluent-kafka with its defaults, except where a function states otherwise."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

T = TypeVar("T")

_TIMEOUT_S = 180.0
_LOOK_S = 0.02
_IMPATIENT_S = 0.2
_IMPATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
}
"""For a starting cluster: the figure is the cluster's start, not the client's retry interval."""
ATTENTIVE: Mapping[str, Any] = {**_IMPATIENT, "retry.backoff.max.ms": 100, "topic.metadata.refresh.interval.ms": 100}
"""For a lost leader: librdkafka's own interval is a second, and it may take two of them."""
_EAGER = {"fetch.queue.backoff.ms": 1}
"""By default a consumer with a full queue fetches nothing for a second, which would dominate the measurement."""
SILENT = logging.getLogger("benchmarks.peers.client")
SILENT.setLevel(logging.CRITICAL)
"""The logger of librdkafka's clients, whose lines would stand between the results."""


class Sender:
    """A producer with a connection to each leader of one topic. It raises RuntimeError if a record failed."""

    def __init__(self, servers: str, topic: str, **settings: object) -> None:
        """``settings`` are the producer's, with ``_`` for dots."""
        self._topic = topic
        self._failures: list[str] = []
        own = {key.replace("_", "."): value for key, value in settings.items()}
        reports = {"on_delivery": self._note, "delivery.report.only.error": True}
        self._producer = Producer({"bootstrap.servers": servers, **reports, **own}, logger=SILENT)
        for partition in _eventually(self._partitions, f"a broker knows {topic}"):
            self._producer.produce(topic, b"connected", partition=partition)
        self._flush()

    def send(self, value: bytes, count: int) -> None:
        """Send as fast as the queue accepts records, and wait until all are acknowledged."""
        produce, topic = self._producer.produce, self._topic
        for _ in range(count):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    self._producer.poll(0.01)
        self._flush()

    def latencies_s(self, value: bytes, count: int) -> list[float]:
        """Send records one at a time, each after the previous one's acknowledgement, and return their latencies."""
        taken = []
        for _ in range(count):
            started = time.perf_counter()
            self._producer.produce(self._topic, value)
            self._flush()
            taken.append(time.perf_counter() - started)
        return taken

    def _partitions(self) -> list[int]:
        return list(self._producer.list_topics(self._topic, timeout=_TIMEOUT_S).topics[self._topic].partitions)

    def _flush(self) -> None:
        left = self._producer.flush(_TIMEOUT_S)
        if left or self._failures:
            raise RuntimeError(f"{self._topic}: {left} records without an answer, errors: {self._failures[:3]}")

    def _note(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))


class Topics:
    """Creates topics and reports their state."""

    def __init__(self, servers: str, security: Mapping[str, Any] = MappingProxyType({})) -> None:
        """``security`` are the client's settings of TLS."""
        self._admin = AdminClient({"bootstrap.servers": servers, **_IMPATIENT, **security}, logger=SILENT)

    def create(
        self, topic: str, partitions: int, replicas: int, config: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Create a topic as soon as the cluster can, even while it starts. ``config`` is added to its configuration.

        Raises:
            TimeoutError: The topic could not be created in time.
        """
        wait_for(lambda: self._brokers() >= replicas, f"the cluster has {replicas} brokers")
        config = {"min.insync.replicas": str(min(2, replicas)), **config}

        def is_created() -> bool:
            new = NewTopic(topic, partitions, replicas, config=config)
            try:
                self._admin.create_topics([new], request_timeout=2)[topic].result()
            except KafkaException as error:
                return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        wait_for(is_created, f"{topic} is created")

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([topic])[topic].result()

    def wait_whole(self, topic: str, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until every partition has a leader and all replicas are in sync."""
        wait_for(lambda: self.is_whole(topic), f"{topic} is whole", timeout_s)

    def is_whole(self, topic: str) -> bool:
        """Return true if every partition has a leader and all replicas are in sync."""
        return all(self._is_whole(partition) for partition in self._partitions(topic) or [None])

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition, once there is one."""
        found = _eventually(
            lambda: [p for p in self._partitions(topic) if p.id == partition and p.leader >= 0],
            f"{topic}-{partition} has a leader",
        )
        return int(found[0].leader)

    def _brokers(self) -> int:
        try:
            return len(self._admin.list_topics(timeout=_IMPATIENT_S).brokers)
        except KafkaException:
            return 0

    def _partitions(self, topic: str) -> list[Any]:
        return list(self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions.values())

    @staticmethod
    def _is_whole(partition: Any) -> bool:
        return partition is not None and partition.leader >= 0 and len(partition.isrs) == len(partition.replicas)


def acknowledge_first_record(servers: str, topic: str, replicas: int) -> None:
    """Create a topic and send a record to it, each as soon as the cluster can."""
    Topics(servers).create(topic, 1, replicas)
    Sender(servers, topic, **{key.replace(".", "_"): value for key, value in _IMPATIENT.items()})


def consume(
    servers: str,
    topic: str,
    partitions: int,
    count: int,
    isolation_level: str = "read_committed",
    security: Mapping[str, Any] = MappingProxyType({}),
) -> float:
    """Read ``count`` records from the start of a topic, and return the seconds from the assignment to the last one.

    ``security`` are the client's settings of TLS.
    """
    settings = {
        "bootstrap.servers": servers,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        **_EAGER,
        **security,
    }
    consumer = Consumer({**settings, "isolation.level": isolation_level}, logger=SILENT)
    consumer.list_topics(topic, timeout=_TIMEOUT_S)
    started = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    left = count
    while left > 0:
        messages = consumer.consume(min(left, 10_000), timeout=_TIMEOUT_S)
        failed = [message.error() for message in messages if message.error() is not None]
        if failed or not messages:
            raise RuntimeError(f"{topic}: {left} records were not read, errors: {failed[:3]}")
        left -= len(messages)
    taken = time.perf_counter() - started
    consumer.close()
    return taken


def records_in(servers: str, topic: str, partitions: int) -> int:
    """Return the number of records in a topic that has lost none."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "benchmark"}, logger=SILENT)
    marks = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
        for partition in range(partitions)
    ]
    consumer.close()
    return sum(high for _, high in marks)


def first_offset(servers: str, topic: str, partition: int) -> int:
    """Return the offset of the first record that a partition still has."""
    settings = {"bootstrap.servers": servers, "group.id": "benchmark", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings, logger=SILENT)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = _eventually(lambda: [m for m in consumer.consume(1, _IMPATIENT_S) if not m.error()], f"{topic} has records")
    consumer.close()
    offset = found[0].offset()
    assert offset is not None
    return offset


class Outage:
    """Sends a record to one partition every few milliseconds, to measure when it accepts records again."""

    def __init__(self, servers: str, topic: str, partition: int, settings: Mapping[str, Any]) -> None:
        self._producer = Producer({"bootstrap.servers": servers, **settings}, logger=SILENT)
        self._topic, self._partition = topic, partition
        self._acknowledged_s = 0.0
        self.seconds_after(lambda: None)

    def seconds_after(self, event: Callable[[], object]) -> float:
        """Return the time from an event to the first acknowledgement of a record produced after it."""
        started_s = time.monotonic()
        event()
        self._acknowledged_s = 0.0
        deadline_s = started_s + _TIMEOUT_S
        while not self._acknowledged_s:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self._topic}-{self._partition} took no record within {_TIMEOUT_S} s")
            self._producer.produce(self._topic, b"still there", partition=self._partition, on_delivery=self._note)
            self._producer.poll(0.01)
        taken_s = self._acknowledged_s - started_s
        self._producer.flush(_TIMEOUT_S)
        return taken_s

    def _note(self, error: KafkaError | None, _: object) -> None:
        if error is None and not self._acknowledged_s:
            self._acknowledged_s = time.monotonic()


def _eventually(look: Callable[[], list[T]], what: str) -> list[T]:
    """Return the first non-empty list. Not every broker knows at once what another one has answered."""
    found: list[T] = []

    def is_found() -> bool:
        found[:] = look()
        return bool(found)

    wait_for(is_found, what)
    return found


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = _TIMEOUT_S) -> None:
    """Wait for a condition, checked every 20 ms.

    Raises:
        TimeoutError: The condition does not hold within the timeout, three minutes by default.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(_LOOK_S)
