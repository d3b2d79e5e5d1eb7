"""The records of topics with unknown partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from tidelog.producer.core.batch import PendingRecord
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for


class PendingRecords:
    """Records by topic, oldest first, and the time since which the cluster refuses a topic. Part of the accumulator."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[PendingRecord]] = {}
        self._refused_since_ms: dict[str, float] = {}

    def __iter__(self) -> Iterator[PendingRecord]:
        return chain.from_iterable(self._by_topic.values())

    @property
    def topics(self) -> set[str]:
        """The topics with records."""
        return set(self._by_topic)

    def add(self, topic: str, record: PendingRecord) -> bool:
        """Add a record; return True if it is its topic's first."""
        records = self._by_topic.get(topic)
        if records is None:
            self._by_topic[topic] = deque((record,))
            return True
        records.append(record)
        return False

    def take(self, topic: str) -> Iterable[PendingRecord]:
        """Remove and return a topic's records, when the topic is known or given up."""
        self._refused_since_ms.pop(topic, None)
        return self._by_topic.pop(topic, ())

    def take_older(self, oldest_ms: float) -> Iterator[tuple[str, PendingRecord]]:
        """Remove and return the records produced at or before that time."""
        for topic, records in list(self._by_topic.items()):
            while records and records[0].produced_ms <= oldest_ms:
                yield topic, records.popleft()
            if not records:
                del self._by_topic[topic]

    def refuse(self, topic: str, error: TidelogError, now_ms: float, grace_ms: float) -> TidelogError | None:
        """Record that the cluster refuses a topic; return the error for its records, or None to keep waiting.

        An unknown topic may appear within ``grace_ms`` after it was last known or given up.
        """
        refused_ms = now_ms - self._refused_since_ms.setdefault(topic, now_ms)
        if not error.code.retriable:
            return error
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or refused_ms < grace_ms:
            return None
        return error_for(ErrorCode._UNKNOWN_TOPIC, error.message)

    def oldest_ms(self) -> Iterator[float]:
        """Return the time at which each topic's first record was produced."""
        return (records[0].produced_ms for records in self._by_topic.values())

    def check_invariants(self) -> None:
        """Assert that every topic has records."""
        assert all(self._by_topic.values())
