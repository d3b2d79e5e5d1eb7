"""The records of topics whose partitions are not known yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from tidelog.producer.core.batch import HeldRecord


class HeldRecords:
    """By topic, the oldest first; and since when the cluster has refused a topic. Part of the accumulator."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[HeldRecord]] = {}
        self._refused_since_ms: dict[str, float] = {}

    def __iter__(self) -> Iterator[HeldRecord]:
        return chain.from_iterable(self._by_topic.values())

    @property
    def topics(self) -> set[str]:
        """The topics with records."""
        return set(self._by_topic)

    def add(self, topic: str, record: HeldRecord) -> bool:
        """Hold a record; returns whether it is the only one of its topic."""
        records = self._by_topic.setdefault(topic, deque())
        records.append(record)
        return len(records) == 1

    def take(self, topic: str) -> Iterable[HeldRecord]:
        """Take out a topic's records: the cluster knows it, or it is given up."""
        self._refused_since_ms.pop(topic, None)
        return self._by_topic.pop(topic, ())

    def take_older(self, oldest_ms: float) -> Iterator[tuple[str, HeldRecord]]:
        """Take out what was produced at that time or before."""
        for topic, records in list(self._by_topic.items()):
            while records and records[0].produced_ms <= oldest_ms:
                yield topic, records.popleft()
            if not records:
                del self._by_topic[topic]

    def refused_for_ms(self, topic: str, now_ms: float) -> float:
        """Note that the cluster refuses a topic; returns for how long, since it was last known or given up."""
        return now_ms - self._refused_since_ms.setdefault(topic, now_ms)

    def oldest_ms(self) -> Iterator[float]:
        """Return when the first record of each topic was produced."""
        return (records[0].produced_ms for records in self._by_topic.values())

    def check_invariants(self) -> None:
        """Assert that a topic without records is not there, and that each topic's are in order."""
        assert all(self._by_topic.values())
