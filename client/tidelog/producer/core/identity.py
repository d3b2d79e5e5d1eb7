"""The cluster's producer id, and the numbering of each partition. Part of the accumulator."""

from __future__ import annotations

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.numbering import Numbering, ProducerIdAndEpoch
from tidelog.producer.core.partition_queue import PartitionQueue


class Identity:
    """One producer's identity from its first record on. ``fresh`` is the id for partitions that need one, None if
    missing.
    """

    def __init__(self, max_in_flight: int, *, idempotent: bool) -> None:
        self._max_in_flight = max_in_flight
        self._idempotent = idempotent
        self._numberings: dict[tuple[str, int], Numbering] = {}
        self._topic_ids: dict[str, bytes] = {}
        self.fresh: ProducerIdAndEpoch | None = None

    @property
    def is_missing(self) -> bool:
        """True if a producer id is required but missing."""
        return self._idempotent and self.fresh is None

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return a partition's queue; its numbering continues."""
        if not self._idempotent:
            return PartitionQueue(topic, partition)
        numbering = self._numberings.setdefault((topic, partition), Numbering())
        return PartitionQueue(topic, partition, numbering, self._max_in_flight)

    def suffices(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Return True if the upcoming batch has a number or can get one; drop an id already used up there."""
        if not queue.needs_id(batch):
            return True
        assert queue.numbering is not None
        if self.fresh is not None and not queue.numbering.accepts(self.fresh):
            self.fresh = None
        return self.fresh is not None

    def learn_topic(self, topic: str, topic_id: bytes) -> None:
        """Note a topic's id. Another id than before means a new topic, whose leaders know no producer."""
        if self._topic_ids.setdefault(topic, topic_id) != topic_id:
            self._topic_ids[topic] = topic_id
            for (name, _), numbering in self._numberings.items():
                if name == topic:
                    numbering.doubt()
