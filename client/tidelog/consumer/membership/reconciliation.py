"""The way of a KIP-848 member from its owned partitions to its assigned ones (pure).

Each step finishes before the next: the application first releases partitions, then gets new ones. A deleted and
recreated topic has another id, so its partitions are released like any others. Partitions change hands one command at a
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.consumer.assignors import KnownTopic
from tidelog.consumer.membership.events import Assign, Key, Revoke
from tidelog.v1 import group_service_pb2 as pb


class Handover:
    """The state of one membership. A partition is ``owned`` from its assignment until the application has released it.

    At most one :class:`Revoke` or :class:`Assign` is pending.
    """

    def __init__(self) -> None:
        self.owned: frozenset[Key] = frozenset()
        self.serving: Revoke | Assign | None = None
        self._last_id = 0

    def assign(self, partitions: frozenset[Key], *, incremental: bool) -> Assign:
        """Assign partitions, in addition to others or to none."""
        assert self.serving is None
        assert not partitions & self.owned
        self._last_id += 1
        self.owned |= partitions
        command = Assign(self._last_id, partitions, incremental)
        self.serving = command
        return command

    def revoke(self, partitions: frozenset[Key], *, incremental: bool, lost: bool = False) -> Revoke:
        """Revoke partitions that the application owns."""
        assert self.serving is None
        assert partitions <= self.owned
        self._last_id += 1
        command = Revoke(self._last_id, partitions, incremental, lost)
        self.serving = command
        return command

    def served(self, rebalance_id: int) -> bool:
        """Apply the application's answer; return True if it belongs to the pending command."""
        command = self.serving
        if command is None or command.rebalance_id != rebalance_id:
            return False
        self.serving = None
        if isinstance(command, Revoke):
            self.owned -= command.partitions
        return True

    def check_invariants(self) -> None:
        """Raise AssertionError if the pending command does not match the owned partitions."""
        if self.serving is not None:
            assert self.serving.partitions <= self.owned
            assert self.serving.incremental or self.serving.partitions == self.owned


TopicIdPartition = tuple[bytes, int]


class Reconciliation:
    """One member's reconciliation. ``current`` is the application's partitions by topic id, reported as owned.

    A partition is reported from the beginning of its assignment: if the coordinator learned of it later, it could
    assign the partition to another member at the same time.
    """

    def __init__(self) -> None:
        self._handover = Handover()
        self._assigned: frozenset[TopicIdPartition] | None = None
        self._reconciled: frozenset[TopicIdPartition] | None = None
        self._revoking: frozenset[TopicIdPartition] = frozenset()
        self._names: dict[bytes, str] = {}
        self.current: frozenset[TopicIdPartition] = frozenset()

    @property
    def owned(self) -> frozenset[Key]:
        """The application's partitions, by topic name."""
        return self._handover.owned

    @property
    def is_serving(self) -> bool:
        """True while the application handles a command."""
        return self._handover.serving is not None

    @property
    def has_unresolved(self) -> bool:
        """True if the assignment has topics with unknown names."""
        return any(topic_id not in self._names for topic_id, _ in self._assigned or ())

    @property
    def has_all(self) -> bool:
        """True if the application has exactly the assigned partitions.

        Partitions of topics with unknown names are missing until their names are known.
        """
        return self.current == self._assigned

    def learn(self, topics: Mapping[str, KnownTopic]) -> None:
        """Store topic names; the names of topics that the application reads stay unchanged."""
        kept = {topic_id for topic_id, _ in self.current}
        names = {topic.topic_id: name for name, topic in topics.items()}
        self._names = names | {topic_id: name for topic_id, name in self._names.items() if topic_id in kept}

    def assign(self, assignment: pb.MemberTopics) -> None:
        """Store the coordinator's assignment."""
        self._assigned = frozenset(
            (topic.topic_id, partition) for topic in assignment.topics for partition in topic.partitions
        )

    def forget(self) -> None:
        """Clear the assignment; :meth:`give_up` releases the application's partitions."""
        self._assigned = self._reconciled = None

    def next_step(self) -> Revoke | Assign | None:
        """Return the application's next command, if it is idle; revocations come first."""
        if self._assigned is None:
            return None
        wanted = frozenset(each for each in self._assigned if each[0] in self._names)
        if wanted == self._reconciled:
            return None
        if revoked := self.current - wanted:
            return self._revoke(revoked)
        self._reconciled = wanted
        added, self.current = wanted - self.current, wanted
        return self._handover.assign(self._named(added), incremental=True)

    def give_up(self, *, lost: bool) -> Revoke | None:
        """Return the command to release everything, or None if there is nothing."""
        return self._revoke(self.current, lost=lost) if self.current else None

    def served(self, rebalance_id: int) -> None:
        """Record that the application has handled a command."""
        if self._handover.served(rebalance_id):
            self.current -= self._revoking
            self._revoking = frozenset()

    def check_invariants(self) -> None:
        """Raise AssertionError if the partitions by name and by id differ."""
        self._handover.check_invariants()
        assert self._handover.owned == self._named(self.current)
        assert len(self._handover.owned) == len(self.current)
        assert self._revoking <= self.current
        assert self.is_serving or not self._revoking

    def _revoke(self, partitions: frozenset[TopicIdPartition], *, lost: bool = False) -> Revoke:
        self._revoking = partitions
        return self._handover.revoke(self._named(partitions), incremental=True, lost=lost)

    def _named(self, partitions: Iterable[TopicIdPartition]) -> frozenset[Key]:
        return frozenset((self._names[topic_id], partition) for topic_id, partition in partitions)


def member_topics(partitions: Iterable[TopicIdPartition]) -> pb.MemberTopics:
    """Return the partitions as a heartbeat carries them."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return pb.MemberTopics(
        topics=[pb.MemberTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()]
    )
