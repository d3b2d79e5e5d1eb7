"""A reader that stays while the cluster fails: what it saw must stay true, and it must never go back by itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping

from acknowledged import Load, Place, wait_for

from tidelog import Consumer, KafkaError, Message, TopicPartition

_OUTAGES = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})


class TopicReader:
    """Reads every partition from offset 0 in a thread of its own until it is stopped.

    ``numbers`` has the record of every offset, by partition. An offset that is skipped, repeated without
    :meth:`read_again`, or has another record than before stops the reader; who waits for it is told.
    """

    def __init__(self, load: Load, partitions: int) -> None:
        self._load = load
        self.numbers: list[list[int]] = [[] for _ in range(partitions)]
        self._expected = [0] * partitions
        self._rewinds: queue.SimpleQueue[Place] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> TopicReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the reader did not finish"

    @property
    def stored(self) -> dict[Place, int]:
        """What was read, by partition and offset."""
        return {(p, offset): n for p, numbers in enumerate(self.numbers) for offset, n in enumerate(numbers)}

    def read_again(self, partition: int, offset: int) -> None:
        """Go back to an offset that was already read; the records must be the same again."""
        self._rewinds.put((partition, offset))

    def has_read(self, ends: list[int]) -> bool:
        """Return whether every partition is read up to its end, and what was to be read again too.

        Raises what the reader found wrong.
        """
        if self._failure is not None:
            raise self._failure
        return self._rewinds.empty() and self._expected == ends

    def wait_until_read(self, offsets: Mapping[int, int]) -> None:
        """Wait until these offsets were read, by partition; raises what the reader found wrong."""

        def are_read() -> bool:
            if self._failure is not None:
                raise self._failure
            return all(offset < len(self.numbers[partition]) for partition, offset in offsets.items())

        wait_for(are_read, f"reading {offsets}, which are acknowledged")

    def _run(self) -> None:
        config = {
            "bootstrap.servers": self._load.bootstrap_servers,
            "auto.offset.reset": "error",
            "request.timeout.ms": 5000,
        }
        try:
            with Consumer(config) as consumer:
                consumer.assign([TopicPartition(self._load.topic, p, 0) for p in range(len(self.numbers))])
                while not self._stopping.is_set():
                    for message in consumer.consume(1_000, 0.1):
                        self._take(message)
                    self._rewind(consumer)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self._failure = error

    def _rewind(self, consumer: Consumer) -> None:
        while not self._rewinds.empty():
            partition, offset = self._rewinds.get()
            self._expected[partition] = offset
            consumer.seek(TopicPartition(self._load.topic, partition, offset))

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            assert error.code() in _OUTAGES, error
            return
        partition, offset = message.partition() or 0, message.offset()
        assert offset == self._expected[partition], f"{partition}: {offset} instead of {self._expected[partition]}"
        number = int(message.value())
        assert message.key() == self._load.key_of(number), f"{partition}:{offset} has {message.key()!r}: {number}"
        numbers = self.numbers[partition]
        if offset == len(numbers):
            numbers.append(number)
        assert numbers[offset] == number, f"{partition}:{offset} was {numbers[offset]} and is {number}"
        self._expected[partition] = offset + 1
