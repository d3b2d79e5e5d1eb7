"""Counts of a node's partitions: traffic by topic, changes of ISRs, and flushes.

The number of topics with counts of their own is limited. All others share one set.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator
from typing import Final

from tidelog_foundation.logs.events import EventLog
from tidelog_foundation.metrics import Kind, Metric

logger = logging.getLogger(__name__)

OTHER_TOPICS: Final = "(other)"
"""The label of the topics beyond the limit. No topic can have this name."""
MAX_TOPICS: Final = 1_000
FLUSHES: Final = Metric(
    "tidelog_log_flush_duration_seconds",
    Kind.HISTOGRAM,
    "The time of flushing a log to its disk.",
    unit="seconds",
    kafka=("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",),
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)


class TopicTraffic:
    """The traffic of a topic's partitions on this node since they were first hosted."""

    __slots__ = ("appends", "bytes_in", "bytes_out", "messages_in", "reads", "replicated_in", "replicated_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        """Bytes of batches that producers have appended."""
        self.messages_in = 0
        self.appends = 0
        """Partitions of produce requests that were appended."""
        self.reads = 0
        """Partitions with records in the fetch responses to consumers."""
        self.bytes_out = 0
        """Bytes of batches in the fetch responses to consumers."""
        self.replicated_in = 0
        """Bytes that this node has fetched from leaders."""
        self.replicated_out = 0
        """Bytes that followers have fetched from this node."""


class Measurements:
    """The counts of all partitions of a node."""

    def __init__(self, max_topics: int = MAX_TOPICS) -> None:
        self._max_topics = max_topics
        self._topics: dict[str, TopicTraffic] = {}
        self.other = TopicTraffic()
        """The traffic of the topics beyond the limit."""
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.roles = EventLog(logger)
        """The log lines about the leaders of partitions."""
        self.flushes = FLUSHES.histogram()
        self.cleaner_runs = 0
        self.cleaner_failures = 0
        self.cleaner_read_bytes = 0
        self.cleaner_written_bytes = 0
        self.uncleanable: set[tuple[str, int]] = set()
        """The partitions that the cleaner skips until the next start."""

    def __iter__(self) -> Iterator[tuple[str, TopicTraffic]]:
        """Yield the topics with counts of their own."""
        return iter(tuple(self._topics.items()))

    def traffic_of(self, topic: str) -> TopicTraffic:
        """Return the counts of a topic, which it shares with others if there are too many."""
        traffic = self._topics.get(topic)
        if traffic is None:
            if len(self._topics) >= self._max_topics:
                return self.other
            traffic = self._topics[topic] = TopicTraffic()
        return traffic

    def label_of(self, topic: str) -> str:
        """Return the name by which a topic is measured."""
        return topic if topic in self._topics else OTHER_TOPICS

    def keep(self, hosted: Container[str]) -> None:
        """Remove the counts of the topics that this node hosts no more."""
        for topic in [topic for topic in self._topics if topic not in hosted]:
            del self._topics[topic]
