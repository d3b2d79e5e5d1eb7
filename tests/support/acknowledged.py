"""A load of unique records on a real cluster, and checks that no acknowledged record is lost."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from tidelog import AdminClient, Consumer, KafkaError, Message, NewTopic, Producer, TopicPartition
from tidelog.testing import LocalCluster

_DEADLINE_S = 60.0
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.02, 0.25
_PAUSES_PER_CHECK = 5
"""A check that asks a cluster takes CPU time from what it waits for: at most a sixth of the time goes to checks."""

Place = tuple[int, int]
"""A partition and an offset."""


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = _DEADLINE_S) -> None:
    """Wait for a condition with a deadline."""
    begun = time.monotonic()
    deadline = begun + timeout_s
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(min(max(_MIN_PAUSE_S, _PAUSES_PER_CHECK * (now - begun)), _MAX_PAUSE_S))
        begun = time.monotonic()


@dataclass
class Load:
    """Produces unique, numbered records from a thread until stopped, and stores every delivery report.

    ``newest`` is the highest acknowledged number by partition. Several producers, each with its own keys, change the
    order of records after a failure. Values are padded to ``value_size`` bytes. A short ``linger_ms`` keeps several
    requests of a partition in flight, at about 1 ms of CPU time each.
    """

    bootstrap_servers: str
    topic: str
    keys: int = 7
    producers: int = 1
    records_per_s: float = 2_000
    value_size: int = 0
    linger_ms: int = 10
    sent: int = 0
    acknowledged: dict[int, Place] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _giving_up: threading.Event = field(default_factory=threading.Event)
    _unreported: int = 0
    _thread: threading.Thread | None = None

    def __enter__(self) -> Load:
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop. After an error stop at once, so that unreported records do not replace the error."""
        if error is None:
            self.stop()
            return
        error.add_note(f"of {self.sent} records {self._waiting} were not reported")
        self._giving_up.set()
        self._end()

    def stop(self) -> None:
        """Stop producing, and wait until every record is reported."""
        self._end()
        assert self._unreported == 0, f"{self._unreported} of {self.sent} records were never reported"

    def wait_for_progress(self, records: int = 500) -> None:
        """Wait until ``records`` more records are acknowledged."""
        target = len(self.acknowledged) + records
        wait_for(lambda: len(self.acknowledged) >= target, f"{records} more acknowledged records")

    def key_of(self, number: int) -> bytes:
        """Return the key of a record."""
        return b"key-%d" % (number % self.keys)

    @property
    def _waiting(self) -> int:
        return self.sent - len(self.acknowledged) - len(self.failed)

    def _end(self) -> None:
        self._stopping.set()
        assert self._thread is not None
        self._thread.join(_DEADLINE_S + 10)
        assert not self._thread.is_alive(), "the producer did not finish"

    def _run(self) -> None:
        config = {
            "bootstrap.servers": self.bootstrap_servers,
            "acks": "all",
            "linger.ms": self.linger_ms,
            "request.timeout.ms": 5000,
        }
        with contextlib.ExitStack() as stack:
            producers = [stack.enter_context(Producer(config)) for _ in range(self.producers)]
            self._produce(producers)
            self._flush(producers)

    def _produce(self, producers: Sequence[Producer]) -> None:
        started_s = time.monotonic()
        while not self._stopping.is_set():
            is_due = self._waiting < 2_000 and self.sent < self.records_per_s * (time.monotonic() - started_s)
            if is_due:
                # A key belongs to one producer, since its records would otherwise have no order.
                producer = producers[self.sent % self.keys % len(producers)]
                value = str(self.sent).ljust(self.value_size)
                producer.produce(self.topic, value, self.key_of(self.sent), on_delivery=self._delivered)
                self.sent += 1
            for producer in producers:
                producer.poll(0 if is_due and self.sent % 50 else 0.01)

    def _flush(self, producers: Sequence[Producer]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while any(map(len, producers)) and time.monotonic() < deadline and not self._giving_up.is_set():
            for producer in producers:
                producer.flush(0.1)
        self._unreported = sum(map(len, producers))
        for producer in producers:
            # Closing it would wait minutes for the remaining records.
            producer.purge()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        number = int(message.value() or b"")
        if error is None:
            partition = message.partition()
            self.acknowledged[number] = (partition, message.offset())
            self.newest[partition] = max(number, self.newest.get(partition, -1))
        else:
            self.failed.append(f"{number}: {error}")


def read_topic(bootstrap_servers: str, topic: str, partitions: int) -> list[Message]:
    """Read every partition from its beginning to the current high watermark."""
    found: list[Message] = []
    with Consumer({"bootstrap.servers": bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        ends = {}
        for index in range(partitions):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=20)
            if high > low:
                ends[index] = high
        consumer.assign([TopicPartition(topic, index, 0) for index in ends])
        reached: dict[int, int] = dict.fromkeys(ends, 0)
        deadline = time.monotonic() + _DEADLINE_S
        while any(reached[index] < end for index, end in ends.items()):
            assert time.monotonic() < deadline, f"read {reached} of {ends}"
            for message in consumer.consume(1_000, timeout=0.5):
                assert message.error() is None, message.error()
                found.append(message)
                reached[message.partition()] = message.offset() + 1
    return found


def assert_nothing_lost(load: Load, messages: list[Message]) -> None:
    """Assert that every acknowledged record is in its place and that the first copies of each key are in order."""
    stored = {(m.partition(), m.offset()): int(m.value()) for m in messages}
    assert all(m.key() == load.key_of(int(m.value())) for m in messages), "a key is not the one that was sent"
    assert_all_stored(load, stored)
    assert_order_of_keys(load, stored)


def assert_stored_exactly_once(load: Load, messages: Sequence[Message]) -> None:
    """Assert that every record was acknowledged and is stored once, at its acknowledged place and in the order of its
    key.
    """
    assert not load.failed, load.failed[:5]
    assert len(load.acknowledged) == load.sent
    assert_nothing_lost(load, list(messages))
    copies = Counter(int(m.value() or b"") for m in messages)
    twice = [number for number, count in copies.items() if count > 1]
    assert not twice, f"{len(twice)} of {load.sent} records are stored more than once, e.g. {twice[:5]}"
    assert len(messages) == load.sent


def assert_all_stored(load: Load, stored: Mapping[Place, int]) -> None:
    """Assert that every acknowledged record is at its acknowledged place."""
    lost = {n: place for n, place in load.acknowledged.items() if stored.get(place) != n}
    assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged records lost, e.g. {list(lost.items())[:5]}"


def assert_order_of_keys(load: Load, stored: Mapping[Place, int]) -> None:
    """Assert that the first copies of each key are in order."""
    latest: dict[bytes, int] = {}
    seen: set[int] = set()
    for place in sorted(stored):
        number = stored[place]
        if number not in seen:
            key = load.key_of(number)
            assert latest.get(key, -1) < number, f"{key!r}: {number} after {latest[key]}"
            latest[key] = number
            seen.add(number)


def create_topic(cluster: LocalCluster, topic: str, partitions: int, replication_factor: int, **config: str) -> None:
    """Create a topic and wait until it is usable."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for future in admin.create_topics([NewTopic(topic, partitions, replication_factor, config=settings)]).values():
            future.result(timeout=30)


def isr_sizes(cluster: LocalCluster, topic: str) -> list[int]:
    """Return the size of each partition's ISR in the cluster's current metadata."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
    return [len(partition.isrs) for partition in partitions.values()]


def wait_for_whole_isrs(cluster: LocalCluster, topic: str, partitions: int) -> None:
    """Wait until every ISR has three members. A failure shows the ISRs and the last output of each process."""
    try:
        wait_for(lambda: isr_sizes(cluster, topic) == [3] * partitions, "every ISR whole")
    except AssertionError as error:
        error.add_note(f"ISRs of {topic}: {isr_sizes(cluster, topic)}")
        for process in (*cluster.controllers.values(), *cluster.nodes.values()):
            state = "runs" if process.is_running else "does not run"
            error.add_note(f"{process.name} {state}:\n{process.log_tail()}")
        raise
