"""Producers of confluent-kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka

from tidelog.message import TopicPartition
from tidelog_chaos.workload.confluent.calls import GRACE_S, ClientCalls
from tidelog_chaos.workload.confluent.values import our_message, silence, their_partitions, translate_error, translated
from tidelog_chaos.workload.library import Delivered
from tidelog_foundation.errors import TidelogError


class ConfluentProducer:
    """A producer, used by one thread."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._calls = ClientCalls()
        with translated():
            self._producer = confluent_kafka.Producer({**silence(config), **config})

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with others from now on. Thread-safe."""
        self._producer.set_sasl_credentials(username, password)

    def produce(self, topic: str, value: str, *, partition: int, on_delivery: Delivered) -> None:
        """Queue a record."""

        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            on_delivery(translate_error(error), our_message(message))

        with translated():
            self._producer.produce(topic, value, partition=partition, on_delivery=delivered)

    def poll(self, timeout: float) -> int:
        """Call callbacks."""
        return self._producer.poll(timeout)

    def flush(self, timeout: float) -> int:
        """Wait for pending records."""
        return self._producer.flush(timeout)

    def purge(self) -> None:
        """Drop pending records; :meth:`close` reports them."""
        self._producer.purge(blocking=False)

    def close(self, timeout: float) -> None:
        """Flush; a producer ends when nothing refers to it any more."""
        owners = [self._producer]
        del self._producer

        def end() -> None:
            try:
                owners[0].flush(timeout)
            finally:
                owners.clear()

        self._calls.end("end", end)


class ConfluentTransactions(ConfluentProducer):
    """A transactional producer, used by one thread. A call that times out continues; the same call waits for it.

    A call that does not end although it has timed out raises a fatal error.
    """

    def init_transactions(self, timeout: float) -> None:
        """Fence earlier producers with the same id, and wait."""
        producer = self._producer
        self._wait("initialize transactions", lambda: producer.init_transactions(timeout), timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._wait("begin a transaction", self._producer.begin_transaction, 0)

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group_metadata: Any, timeout: float) -> None:
        """Commit offsets with the transaction, and wait."""
        producer, offsets = self._producer, their_partitions(positions)
        what = "send offsets to a transaction"
        self._wait(what, lambda: producer.send_offsets_to_transaction(offsets, group_metadata, timeout), timeout)

    def commit_transaction(self, timeout: float) -> None:
        """Commit, and wait."""
        producer = self._producer
        self._wait("commit a transaction", lambda: producer.commit_transaction(timeout), timeout)

    def abort_transaction(self, timeout: float) -> None:
        """Abort, and wait."""
        producer = self._producer
        self._wait("abort a transaction", lambda: producer.abort_transaction(timeout), timeout)

    def close(self, timeout: float) -> None:
        """Flush; a fenced producer has nothing to flush, and says so with an exception."""
        with contextlib.suppress(TidelogError):
            super().close(timeout)

    def _wait(self, what: str, call: Callable[[], object], timeout_s: float) -> None:
        self._calls.run(what, call, timeout_s + GRACE_S)
