"""A steady load during failures of the cluster, with the times of all acknowledgements."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple

from tidelog import AdminClient, KafkaError, Message, NewTopic, Producer
from tidelog.testing import LocalCluster

_DEADLINE_S = 60.0


class Sent(NamedTuple):
    """An acknowledged record. The times are in seconds of the monotonic clock."""

    offset: int
    produced_s: float
    acknowledged_s: float

    @property
    def latency_s(self) -> float:
        """The time from produce() to the delivery callback."""
        return self.acknowledged_s - self.produced_s


class SteadyLoad:
    """Sends from a thread, to one partition after another, from entering until leaving.

    ``acknowledged`` has the records by partition in the order of their acknowledgements. Leaving raises AssertionError
    if a record failed.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        records_per_s: float,
        value_size: int,
        producer: Mapping[str, object],
    ) -> None:
        self.acknowledged: list[list[Sent]] = [[] for _ in range(partitions)]
        self._topic = topic
        self._interval_s = 1 / records_per_s
        self._value = os.urandom(value_size)
        self._config = {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0, **producer}
        self._failed: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="steady-load", daemon=True)

    def __enter__(self) -> SteadyLoad:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(_DEADLINE_S)
        if error is None:
            assert not self._thread.is_alive(), "the producer did not finish"
            assert not self._failed, self._failed[:5]

    def wait_until_acknowledged(self, partitions: Collection[int], produced_after_s: float) -> None:
        """Wait until each partition has acknowledged a record produced after that time."""

        def is_missing(partition: int) -> bool:
            sent = self.acknowledged[partition]
            return not sent or sent[-1].produced_s <= produced_after_s

        wait_for(lambda: not any(map(is_missing, partitions)), f"records are acknowledged by {sorted(partitions)}")

    def longest_gap_s(self, partition: int, start_s: float) -> float:
        """Return a partition's longest time between two acknowledgements, the later of which is after ``start_s``."""
        times = _latest(self.acknowledged[partition], start_s)
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def longest_latency_s(self, start_s: float, end_s: float) -> float:
        """Return the longest latency of the records produced in [start_s, end_s)."""
        found = (
            sent.latency_s
            for records in self.acknowledged
            for sent in reversed(records)
            if start_s <= sent.produced_s < end_s
        )
        return max(found)

    def _run(self) -> None:
        with Producer(self._config) as producer:
            started_s, count = time.monotonic(), 0
            while not self._stopping.is_set():
                due_s = started_s + count * self._interval_s
                if time.monotonic() >= due_s:
                    self._produce(producer, count % len(self.acknowledged))
                    count += 1
                producer.poll(max(0.0, started_s + count * self._interval_s - time.monotonic()))

    def _produce(self, producer: Producer, partition: int) -> None:
        produced_s = time.monotonic()

        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent = Sent(message.offset() or 0, produced_s, time.monotonic())
                self.acknowledged[partition].append(sent)
            else:
                self._failed.append(f"{message.topic()}-{partition}: {error}")

        producer.produce(self._topic, self._value, partition=partition, on_delivery=note)


class Leadership:
    """The leaders of the partitions of one topic, according to its nodes."""

    def __init__(self, cluster: LocalCluster, topic: str, partitions: int, *, min_insync_replicas: int = 2) -> None:
        """Create the topic with three replicas of each partition."""
        self._topic = topic
        self._nodes = len(cluster.nodes)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = {"min.insync.replicas": str(min_insync_replicas)}
        new = NewTopic(topic, partitions, min(3, self._nodes), config=config)
        self._admin.create_topics([new])[topic].result(_DEADLINE_S)
        self.wait_whole()

    def __enter__(self) -> Leadership:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin.close()

    def by_node(self) -> dict[int, list[int]]:
        """Return the partitions that each node leads; -1 stands for no leader."""
        led: dict[int, list[int]] = {}
        for partition in self._partitions():
            led.setdefault(partition[1], []).append(partition[0])
        return led

    def busiest(self) -> tuple[int, list[int]]:
        """Return the node that leads the most partitions, and those partitions."""
        return max(self.by_node().items(), key=lambda item: len(item[1]))

    def wait_whole(self) -> None:
        """Wait until every partition has a leader and all replicas are in sync."""
        wait_for(lambda: all(isr == min(3, self._nodes) for _, _, isr in self._partitions()), "every ISR whole")

    def _partitions(self) -> Sequence[tuple[int, int, int]]:
        """Return the number, leader and ISR size of each partition."""
        found = self._admin.list_topics(self._topic, timeout=_DEADLINE_S).topics[self._topic].partitions
        return [(p.id, p.leader, len(p.isrs) if p.leader >= 0 else 0) for p in found.values()] or [(0, -1, 0)]


def wait_for(condition: Callable[[], bool], what: str, look_s: float = 0.02) -> None:
    """Wait for a condition, checked every ``look_s``.

    Raises:
        TimeoutError: The condition does not hold within a minute.
    """
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_DEADLINE_S} s: {what}")
        time.sleep(look_s)


def _latest(sent: Sequence[Sent], start_s: float) -> list[float]:
    """Return the times of the acknowledgements after ``start_s`` and of the last one before it, in order."""
    times = []
    for record in reversed(sent):
        times.append(record.acknowledged_s)
        if record.acknowledged_s <= start_s:
            break
    return times[::-1]
