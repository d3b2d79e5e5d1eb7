"""Settles partitions in entries of bounded size: the leading controller's queue of partitions to check.

An event that affects many partitions, such as the expired session of a broker with 100,000 replicas, is one entry with
the event and the first changes. The rest follows, an entry at a time, each computed from the image at that time. So
other requests are handled in between, and nothing is lost when the leadership moves: the next leader starts with all
partitions that are not settled (``elections.possibly_unsettled``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from copy import copy
from itertools import islice

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_quorum.controller import elections
from tidelog_quorum.controller.partition_change import ElectionRules
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import MetadataRecord

MAX_CHANGES = 2_000
"""The maximum number of partitions that one entry changes; some 40 ms of work."""


class PartitionQueue:
    """The queue of partitions to settle. The controller's handlers add partitions to it, and its tick removes them."""

    def __init__(self, own: TopicConfig, max_changes: int = MAX_CHANGES) -> None:
        self._own = own
        self._max_changes = max_changes
        self._waiting: deque[tuple[elections.PartitionScan, frozenset[BrokerId]]] = deque()
        self._configs: object = None

    @property
    def is_idle(self) -> bool:
        """True if the queue is empty."""
        return not self._waiting

    def waiting(self) -> frozenset[tuple[TopicId, int]]:
        """Return the queued partitions; for checks, because finding them takes time."""
        return frozenset((topic.topic_id, i) for scan, _ in self._waiting for topic, i, _ in copy(scan))

    def restart(self, image: MetadataImage) -> None:
        """Start with the partitions that an earlier leader may have left."""
        self.forget()
        self._configs = image.configs
        self._wait(elections.possibly_unsettled(image), elections.NOBODY)

    def forget(self) -> None:
        """Clear the queue."""
        self._waiting.clear()

    def changes(
        self,
        image: MetadataImage,
        brokers: elections.Brokers,
        candidates: elections.PartitionScan,
        unclean_shutdown: frozenset[BrokerId] = elections.NOBODY,
    ) -> list[MetadataRecord]:
        """Return the changes that settle the first ``candidates``; queue the others. See ``elections.settled``."""
        records = self._changes(image, brokers, candidates, unclean_shutdown)
        self._wait(candidates, unclean_shutdown)
        return records

    def changes_at_once(
        self,
        image: MetadataImage,
        brokers: elections.Brokers,
        candidates: elections.PartitionScan,
        unclean_shutdown: frozenset[BrokerId] = elections.NOBODY,
    ) -> list[MetadataRecord] | None:
        """Return the changes that settle all ``candidates``, or None if they are too many for one entry."""
        records = self._changes(image, brokers, candidates, unclean_shutdown)
        return None if candidates.find() else records

    def postpone(self, candidates: elections.PartitionScan, unclean_shutdown: frozenset[BrokerId]) -> None:
        """Queue partitions if the queue is empty."""
        if self.is_idle:
            self._wait(candidates, unclean_shutdown)

    def note_settings(self, image: MetadataImage) -> None:
        """Queue partitions without a leader if settings have changed, which may allow a replica to lead.

        The setting is ``unclean.leader.election.enable``; Kafka checks it every five minutes.
        """
        if self._configs is not image.configs:
            self._configs = image.configs
            self._wait(elections.without_leader(image), elections.NOBODY)

    def go_on(self, image: MetadataImage) -> list[MetadataRecord]:
        """Settle the next queued partitions and return their changes."""
        records: list[MetadataRecord] = []
        rules: dict[str, ElectionRules] = {}
        for (earlier, index, _), unclean_shutdown in islice(self._next_waiting(), self._max_changes):
            topic = image.topic_by_id(earlier.topic_id)
            if topic is not None and index in topic.partitions:
                candidate = topic, index, topic.partitions[index]
                unclean = frozenset(b for b in unclean_shutdown if _is_away(image, b))
                records += self._change(image, image.brokers, candidate, unclean, rules)
        return records

    def _next_waiting(self) -> Iterator[tuple[elections.Candidate, frozenset[BrokerId]]]:
        while self._waiting:
            candidates, unclean_shutdown = self._waiting[0]
            for candidate in candidates:
                yield candidate, unclean_shutdown
            self._waiting.popleft()

    def _changes(
        self,
        image: MetadataImage,
        brokers: elections.Brokers,
        candidates: elections.PartitionScan,
        unclean_shutdown: frozenset[BrokerId],
    ) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        rules: dict[str, ElectionRules] = {}
        while len(records) < self._max_changes and (candidate := next(candidates, None)) is not None:
            records += self._change(image, brokers, candidate, unclean_shutdown, rules)
        return records

    def _change(
        self,
        image: MetadataImage,
        brokers: elections.Brokers,
        candidate: elections.Candidate,
        unclean_shutdown: frozenset[BrokerId],
        rules: dict[str, ElectionRules],
    ) -> tuple[MetadataRecord, ...]:
        topic, index, partition = candidate
        change = elections.settled(
            brokers, self._rules(image, topic, rules), topic.topic_id, index, partition, unclean_shutdown
        )
        return () if change is None else (change,)

    def _rules(self, image: MetadataImage, topic: TopicImage, known: dict[str, ElectionRules]) -> ElectionRules:
        if topic.name not in known:
            known[topic.name] = elections.rules_of(image, topic.name, self._own)
        return known[topic.name]

    def _wait(self, candidates: elections.PartitionScan, unclean_shutdown: frozenset[BrokerId]) -> None:
        # Evaluated only in their turn: they are found in the image of the event, and settled in the current one.
        if candidates.find():
            self._waiting.append((candidates, unclean_shutdown))


def _is_away(image: MetadataImage, broker_id: BrokerId) -> bool:
    """Return whether a broker is away. One that serves again has fetched all that it lacked since."""
    broker = image.brokers.get(broker_id)
    return broker is None or broker.fenced
