"""The transactional producer of both clusters: confluent-kafka with its defaults, and settings of the caller."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, Producer

_TIMEOUT_S = 60.0
_SILENT = logging.getLogger("benchmarks.peers.transaction_client")
_SILENT.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True)
class Committed:
    """The seconds of a number of transactions, and those of the last part of each, its commit."""

    seconds: float
    commits_s: list[float]


class TransactionalSender:
    """A transactional producer of one topic. A method raises RuntimeError if a record failed."""

    def __init__(self, servers: str, topic: str, partitions: int, settings: Mapping[str, Any] | None = None) -> None:
        """Initialize the producer, and commit a first transaction with a record in each partition."""
        self._topic, self._partitions = topic, partitions
        self._failures: list[str] = []
        reports = {"on_delivery": self._note, "delivery.report.only.error": True}
        own = {"transactional.id": f"benchmark-{topic}", **(settings or {})}
        self._producer = Producer({"bootstrap.servers": servers, **reports, **own}, logger=_SILENT)
        self._producer.init_transactions(_TIMEOUT_S)
        self.commit_each(b"connected", records=partitions, count=1)

    def commit_each(self, value: bytes, records: int, count: int) -> Committed:
        """Commit transactions, one after the other. The records of each go to all partitions in turn.

        A commit is measured from the acknowledgement of all records on.
        """
        begun_s, commits_s = time.perf_counter(), []
        for _ in range(count):
            self._producer.begin_transaction()
            for index in range(records):
                self._producer.produce(self._topic, value, partition=index % self._partitions)
            self._producer.flush(_TIMEOUT_S)
            flushed_s = time.perf_counter()
            self._producer.commit_transaction(_TIMEOUT_S)
            commits_s.append(time.perf_counter() - flushed_s)
            self._check()
        return Committed(time.perf_counter() - begun_s, commits_s)

    def send(self, value: bytes, count: int, transaction_s: float) -> None:
        """Send records as fast as the queue accepts them, in transactions that are committed after ``transaction_s``.

        That is what Kafka's ``kafka-producer-perf-test.sh --transaction-duration-ms`` does.
        """
        left = count
        while left:
            self._producer.begin_transaction()
            left -= self._fill(value, left, transaction_s)
            self._producer.commit_transaction(_TIMEOUT_S)
            self._check()

    def end_each(self, value: bytes, records: int, decisions: Iterable[bool]) -> None:
        """Send a transaction of some records for each decision, and commit it if the decision is True, else abort it.

        The records of an aborted transaction are acknowledged before its end.
        """
        for is_commit in decisions:
            self._producer.begin_transaction()
            self._fill(value, records)
            self._producer.flush(_TIMEOUT_S)
            end = self._producer.commit_transaction if is_commit else self._producer.abort_transaction
            end(_TIMEOUT_S)
            self._check()

    def _fill(self, value: bytes, most: int, limit_s: float = _TIMEOUT_S) -> int:
        """Send records until there are ``most`` or the time is over, and return their number."""
        produce, topic = self._producer.produce, self._topic
        ends_s = time.perf_counter() + limit_s
        for sent in range(1, most + 1):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    self._producer.poll(0.001)
            if time.perf_counter() >= ends_s:
                return sent
        return most

    def _check(self) -> None:
        if self._failures:
            raise RuntimeError(f"{self._topic}: {self._failures[:3]}")

    def _note(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))
