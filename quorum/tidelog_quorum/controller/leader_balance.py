"""Automatic return of leaderships to the preferred replicas (``auto.leader.rebalance.enable``).

Every ``leader.imbalance.check.interval.seconds`` the leading controller reads all partitions and counts, for each
broker, those that prefer it and those of them that have another leader. For brokers whose share of the latter is above
``leader.imbalance.per.broker.percentage`` it then elects the preferred leaders, each by the partition's current state.

Both run in steps, so that no call takes long whatever the number of partitions: a step reads ``PARTITIONS_PER_STEP``
partitions, or elects ``ELECTIONS_PER_STEP`` leaders (Kafka's bound for one run of maybeBalancePartitionLeaders), and
then asks for another step at once. The first pass reads one image from beginning to end, so that its counts are
consistent.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_quorum.controller.elect_leaders import preferred_election
from tidelog_quorum.controller.elections import AllPartitions, PartitionScan
from tidelog_quorum.controller.reassignment import TopicRules
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import PartitionChangeRecord

PARTITIONS_PER_STEP = 5_000
ELECTIONS_PER_STEP = 1_000


@dataclass(slots=True)
class _Census:
    """The partitions of one image, counted by preferred broker."""

    remaining: PartitionScan
    preferred: Counter[BrokerId] = field(default_factory=Counter)
    led_elsewhere: dict[BrokerId, list[tuple[TopicId, int]]] = field(default_factory=dict)

    def go_on(self) -> bool:
        """Count some more partitions. Return whether all are counted."""
        seen = 0
        for topic, index, partition in itertools.islice(self.remaining, PARTITIONS_PER_STEP):
            seen += 1
            preferred = partition.replicas[0]
            self.preferred[preferred] += 1
            if partition.leader != preferred:
                self.led_elsewhere.setdefault(preferred, []).append((topic.topic_id, index))
        return seen < PARTITIONS_PER_STEP


class LeaderBalance:
    """Soft state of a leading controller: :meth:`restart` when it begins to lead, then :meth:`step` by the clock."""

    def __init__(self, interval_ms: int, percentage: int) -> None:
        self._interval_ms = interval_ms
        self._percentage = percentage
        self._due_ms = 0
        self._census: _Census | None = None
        self._waiting: deque[tuple[TopicId, int]] = deque()

    @property
    def is_under_way(self) -> bool:
        """True if the next step has work to do."""
        return self._census is not None or bool(self._waiting)

    def restart(self, now_ms: int) -> None:
        """Drop a check in progress; the next one is due after a whole interval."""
        self._census = None
        self._waiting.clear()
        self._due_ms = now_ms + self._interval_ms

    def step(self, image: MetadataImage, rules_of: TopicRules, now_ms: int) -> list[PartitionChangeRecord]:
        """Continue a check that is due or in progress, and return the elections to make now, usually none."""
        if not self.is_under_way:
            if now_ms < self._due_ms:
                return []
            self._due_ms = now_ms + self._interval_ms
            self._census = _Census(PartitionScan(image, AllPartitions()))
        if self._census is not None:
            if self._census.go_on():
                self._waiting.extend(self._imbalanced(self._census))
                self._census = None
            return []
        return self._elect(image, rules_of)

    def _imbalanced(self, census: _Census) -> Iterator[tuple[TopicId, int]]:
        for broker_id, elsewhere in sorted(census.led_elsewhere.items()):
            if len(elsewhere) * 100 > self._percentage * census.preferred[broker_id]:
                yield from elsewhere

    def _elect(self, image: MetadataImage, rules_of: TopicRules) -> list[PartitionChangeRecord]:
        changes = []
        for _ in range(min(ELECTIONS_PER_STEP, len(self._waiting))):
            topic_id, index = self._waiting.popleft()
            topic = image.topic_by_id(topic_id)
            partition = None if topic is None else topic.partitions.get(index)
            if topic is None or partition is None:
                continue
            change = preferred_election(image, rules_of, topic, index, partition)
            if change is not None:
                changes.append(change)
        return changes
