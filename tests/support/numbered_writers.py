"""Threads that write numbers to a topic under faults, in transactions or one by one, and readers of what is there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tidelog.testing import LocalCluster

PARTITIONS = 2
_READ_S = 120.0


class Record(NamedTuple):
    """A record as a consumer receives it."""

    offset: int
    number: int
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass
class Writer:
    """A thread that writes numbers to all partitions, in transactions or one by one, and keeps their outcomes."""

    servers: str
    topic: str
    is_transactional: bool
    acknowledged: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    next: int = 0

    def __post_init__(self) -> None:
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{self.topic}")

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, after the outcome of what has been written is known."""
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stops.is_set():
            with contextlib.suppress(KafkaException):
                self._write_until_failure()

    def _write_until_failure(self) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": self.servers,
            "enable.idempotence": True,
            "delivery.timeout.ms": 20_000,
            "linger.ms": 0,
        }
        if not self.is_transactional:
            producer = Producer(settings)
            while not self._stops.wait(0.002):
                self._write_record(producer)
            producer.flush(60)
            return
        producer = Producer({**settings, "transactional.id": self.topic, "transaction.timeout.ms": 20_000})
        producer.init_transactions(20)
        while not self._stops.is_set():
            self._transact(producer)

    def _write_record(self, producer: Producer) -> None:
        number, self.next = self.next, self.next + 1
        left = [PARTITIONS]

        def note(error: KafkaError | None, _: object) -> None:
            left[0] -= error is None
            if not left[0]:
                self.acknowledged.add(number)

        for partition in range(PARTITIONS):
            producer.produce(
                self.topic, str(number), _key(number), partition, on_delivery=note, headers=_headers(number)
            )
        producer.poll(0)

    def _transact(self, producer: Producer) -> None:
        number, self.next = self.next, self.next + 1
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(self.topic, str(number), _key(number), partition, headers=_headers(number))
        if number % 5 == 4:
            self.aborted.add(number)
            producer.abort_transaction(20)
            return
        producer.commit_transaction(20)
        self.acknowledged.add(number)


def ends(cluster: LocalCluster, topic: str) -> list[int]:
    """Return the high watermarks of a topic's partitions."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends"}
    with Consumer(settings) as consumer:
        return [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=60)[1] for p in range(PARTITIONS)]


def read(cluster: LocalCluster, topic: str, isolation: str = "read_committed") -> list[list[Record]]:
    """Return the records of each partition up to its end."""
    found: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "all",
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + _READ_S
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic} has no end"
            message = consumer.poll(1)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            assert partition is not None
            if error is None:
                headers = tuple(message.headers() or ())
                number, (_, timestamp_ms) = int(message.value() or b""), message.timestamp()
                found[partition].append(Record(message.offset() or 0, number, message.key(), headers, timestamp_ms))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(partition)
    return found


def problems_of(writer: Writer, partitions: Iterable[Iterable[Record]], name: str | None = None) -> list[str]:
    """Return what is lost, doubled, out of order, or there although it was aborted."""
    problems = []
    for partition, records in enumerate(partitions):
        numbers = [record.number for record in records]
        where = f"{name or writer.topic}-{partition}"
        if lost := writer.acknowledged.difference(numbers):
            problems.append(f"{where} has lost {sorted(lost)[:5]} and others, {len(lost)} in all")
        if writer.aborted.intersection(numbers):
            problems.append(f"{where} has aborted records {sorted(writer.aborted.intersection(numbers))[:5]}")
        if numbers != sorted(set(numbers)):
            problems.append(f"{where} has records twice or out of order")
    return problems


def _key(number: int) -> bytes:
    return b"key-%d" % (number % 7)


def _headers(number: int) -> list[tuple[str, bytes]]:
    return [("number", b"%d" % number)] if number % 3 else []
