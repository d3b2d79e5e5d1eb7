"""The topics behind streams and tables: their names, their creation, and samples of their records. Blocking."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog import AdminClient, Consumer, NewTopic, TopicPartition
from tidelog_foundation.errors import ErrorCode, KafkaError, TidelogError, error_for
from tidelog_spark.sql.errors import SqlError

SAMPLE_RECORDS = 1_000
"""The number of records, the latest of a topic, from which columns are inferred."""
SAMPLE_BYTES = 16 * 1024 * 1024
_SAMPLE_PARTITIONS = 100
_BATCH = 500
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Sample:
    """The keys and the values of some records."""

    keys: list[bytes | None]
    values: list[bytes | None]


class Topics:
    """The topics of a cluster."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float) -> None:
        self._settings = dict(settings)
        self._timeout_s = timeout_s

    def partitions(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of partitions and of replicas by topic."""
        with AdminClient(self._settings) as admin:
            topics = admin.list_topics(timeout=self._timeout_s).topics.values()
        return {
            each.topic: (len(each.partitions), max((len(p.replicas) for p in each.partitions.values()), default=0))
            for each in topics
        }

    def exists(self, topic: str) -> bool:
        """Return whether the topic exists."""
        return topic in self.partitions()

    def create(self, topic: str, partitions: int, replicas: int, config: Mapping[str, str]) -> None:
        """Create a topic if it does not exist; -1 stands for the cluster's default.

        Raises:
            TidelogError: it was not created.
        """
        with AdminClient(self._settings) as admin:
            if replicas > 0:
                replicas = min(replicas, len(admin.describe_cluster().result().nodes))
            made = admin.create_topics([NewTopic(topic, partitions, replicas, config=dict(config))])
            try:
                made[topic].result()
            except TidelogError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        deadline = time.monotonic() + self._timeout_s
        while not self.exists(topic):
            # A node may learn of the topic later than the one that has created it.
            if time.monotonic() >= deadline:
                raise error_for(ErrorCode._TIMED_OUT, f"the topic {topic} was created, and no node shows it yet")

    def sample(self, topic: str) -> Sample:
        """Return up to `SAMPLE_RECORDS` records from the ends of a topic's partitions, and at most `SAMPLE_BYTES`.

        Raises:
            TidelogError: the topic cannot be read.
        """
        settings = {**self._settings, "enable.partition.eof": True, "auto.offset.reset": "earliest"}
        with Consumer(settings) as consumer:
            starts = self._starts(consumer, topic)
            consumer.assign(starts)
            return self._read(consumer, {start.partition for start in starts})

    def _starts(self, consumer: Consumer, topic: str) -> list[TopicPartition]:
        known = consumer.list_topics(topic, timeout=self._timeout_s).topics[topic]
        if known.error is not None:
            raise SqlError(f"there is no stream, table or topic {topic}")
        chosen = sorted(known.partitions)[:_SAMPLE_PARTITIONS]
        share = -(-SAMPLE_RECORDS // max(len(chosen), 1))
        starts = []
        for partition in chosen:
            key = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(key, timeout=self._timeout_s)
            if high > low:
                starts.append(TopicPartition(topic, partition, max(low, high - share)))
        return starts

    def _read(self, consumer: Consumer, reading: set[int]) -> Sample:
        sample, size = Sample([], []), 0
        deadline = time.monotonic() + self._timeout_s
        while reading and len(sample.values) < SAMPLE_RECORDS and size < SAMPLE_BYTES and time.monotonic() < deadline:
            for message in consumer.consume(_BATCH, _POLL_S):
                failed = message.error()
                if failed is None:
                    key, value = message.key(), message.value()
                    sample.keys.append(key)
                    sample.values.append(value)
                    size += len(key or b"") + len(value or b"")
                elif failed.code() == KafkaError._PARTITION_EOF:  # type: ignore[attr-defined]
                    reading.discard(message.partition() or 0)
                else:
                    raise TidelogError(failed)
        return sample
