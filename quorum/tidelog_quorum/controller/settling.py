"""Settles partitions in entries of bounded size: the leading controller's list of those that it has still to look at.

An event that concerns many partitions, such as the end of a session of a broker that holds 100,000 replicas, is one
entry with what happened and with the first changes; the rest follows, an entry at a time, each computed from the image
as it is by then. So other requests come in between, and nothing is lost when the leadership moves: the next leader
begins with all partitions that are not settled (``elections.doubtful``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_quorum.controller.elections import (
    NOBODY,
    Brokers,
    Candidate,
    doubtful,
    rules_of,
    settled,
    without_leader,
)
from tidelog_quorum.controller.partition_change import ElectionRules
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.records import MetadataRecord

MAX_CHANGES = 2_000
"""The partitions that one entry changes at most; some 40 ms of work."""


class Settling:
    """Created by a controller; its handlers add to it, its tick takes from it. Forgotten with the leadership."""

    def __init__(self, own: TopicConfig, max_changes: int = MAX_CHANGES) -> None:
        self._own = own
        self._max_changes = max_changes
        self._waiting: deque[tuple[Iterator[Candidate], frozenset[BrokerId]]] = deque()
        self._configs: object = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def waiting(self) -> frozenset[tuple[TopicId, int]]:
        """Return the partitions that wait; for checks, since it takes time to find them."""
        found = [(list(candidates), unclean_shutdown) for candidates, unclean_shutdown in self._waiting]
        self._waiting = deque((iter(candidates), unclean_shutdown) for candidates, unclean_shutdown in found)
        return frozenset((topic.topic_id, index) for candidates, _ in found for topic, index, _ in candidates)

    def restart(self, image: MetadataImage) -> None:
        """Begin with what an earlier leader may have left."""
        self.forget()
        self._configs = image.configs
        self._wait(doubtful(image), NOBODY)

    def forget(self) -> None:
        """Forget what waits."""
        self._waiting.clear()

    def changes(
        self,
        image: MetadataImage,
        brokers: Brokers,
        candidates: Iterable[Candidate],
        unclean_shutdown: frozenset[BrokerId] = NOBODY,
    ) -> list[MetadataRecord]:
        """Return the changes that settle the first ``candidates``; the others wait. See ``elections.settled``."""
        rest = iter(candidates)
        records = self._changes(image, brokers, rest, unclean_shutdown)
        self._wait(rest, unclean_shutdown)
        return records

    def changes_at_once(
        self,
        image: MetadataImage,
        brokers: Brokers,
        candidates: Iterable[Candidate],
        unclean_shutdown: frozenset[BrokerId] = NOBODY,
    ) -> list[MetadataRecord] | None:
        """Return the changes that settle all ``candidates``, or None when they are too many for one entry."""
        rest = iter(candidates)
        records = self._changes(image, brokers, rest, unclean_shutdown)
        return records if next(rest, None) is None else None

    def postpone(self, candidates: Iterable[Candidate], unclean_shutdown: frozenset[BrokerId]) -> None:
        """Let partitions wait, unless others do already."""
        if self.is_idle:
            self._wait(candidates, unclean_shutdown)

    def note_settings(self, image: MetadataImage) -> None:
        """See whether settings have changed: they may let somebody lead who was not allowed to.

        That is ``unclean.leader.election.enable``, which Kafka looks after every five minutes.
        """
        if self._configs is not image.configs:
            self._configs = image.configs
            self._wait(without_leader(image), NOBODY)

    def go_on(self, image: MetadataImage) -> list[MetadataRecord]:
        """Look at the next partitions that wait and return their changes."""
        records: list[MetadataRecord] = []
        rules: dict[str, ElectionRules] = {}
        for (earlier, index, _), unclean_shutdown in islice(self._next_waiting(), self._max_changes):
            topic = image.topic_by_id(earlier.topic_id)
            if topic is not None and index in topic.partitions:
                candidate = topic, index, topic.partitions[index]
                unclean = frozenset(b for b in unclean_shutdown if _is_away(image, b))
                records += self._change(image, image.brokers, candidate, unclean, rules)
        return records

    def _next_waiting(self) -> Iterator[tuple[Candidate, frozenset[BrokerId]]]:
        while self._waiting:
            candidates, unclean_shutdown = self._waiting[0]
            for candidate in candidates:
                yield candidate, unclean_shutdown
            self._waiting.popleft()

    def _changes(
        self,
        image: MetadataImage,
        brokers: Brokers,
        candidates: Iterator[Candidate],
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
        brokers: Brokers,
        candidate: Candidate,
        unclean_shutdown: frozenset[BrokerId],
        rules: dict[str, ElectionRules],
    ) -> tuple[MetadataRecord, ...]:
        topic, index, partition = candidate
        change = settled(brokers, self._rules(image, topic, rules), topic.topic_id, index, partition, unclean_shutdown)
        return () if change is None else (change,)

    def _rules(self, image: MetadataImage, topic: TopicImage, known: dict[str, ElectionRules]) -> ElectionRules:
        if topic.name not in known:
            known[topic.name] = rules_of(image, topic.name, self._own)
        return known[topic.name]

    def _wait(self, candidates: Iterable[Candidate], unclean_shutdown: frozenset[BrokerId]) -> None:
        # Not looked for before their turn: they are found in the image of the event, and settled in that of their turn.
        first = next(rest := iter(candidates), None)
        if first is not None:
            self._waiting.append((chain((first,), rest), unclean_shutdown))


def _is_away(image: MetadataImage, broker_id: BrokerId) -> bool:
    """One that serves again has got all that it lacked from a leader before it came back into an ISR."""
    broker = image.brokers.get(broker_id)
    return broker is None or broker.fenced
