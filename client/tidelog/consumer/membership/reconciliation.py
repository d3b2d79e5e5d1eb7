"""How a member of KIP-848's protocol gets from what it has to what the coordinator assigns (pure).

One step at a time: first the application gives up what is assigned no more, then it is given what is new. A topic that
was deleted and made anew has another id: its partitions are given up like others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.consumer.membership.events import Assign, Key, KnownTopic, Revoke
from tidelog.consumer.membership.handover import Handover
from tidelog.v1 import group_service_pb2 as pb

TopicIdPartition = tuple[bytes, int]


class Reconciliation:
    """One member's. ``current`` is what the coordinator is told as owned: what the application has, by topic ids.

    That begins when it is being given, not when it knows: a coordinator that was told of less could give the partition
    to another member, which the application would then share it with.
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
        """What the application has, by name."""
        return self._handover.owned

    @property
    def is_serving(self) -> bool:
        """Whether the application is dealing with the last command."""
        return self._handover.serving is not None

    @property
    def has_unresolved(self) -> bool:
        """Whether partitions are assigned of topics whose names are not known."""
        return any(topic_id not in self._names for topic_id, _ in self._assigned or ())

    @property
    def has_all(self) -> bool:
        """Whether the application has what is assigned and no more.

        Partitions of topics whose names are not known are missing: the application will be given them.
        """
        return self.current == self._assigned

    def learn(self, topics: Mapping[str, KnownTopic]) -> None:
        """Take the names of topics; those of topics that the application has stay, whatever the metadata says."""
        kept = {topic_id for topic_id, _ in self.current}
        names = {topic.topic_id: name for name, topic in topics.items()}
        self._names = names | {topic_id: name for topic_id, name in self._names.items() if topic_id in kept}

    def assign(self, assignment: pb.MemberTopics) -> None:
        """Take what the coordinator assigns."""
        self._assigned = frozenset(
            (topic.topic_id, partition) for topic in assignment.topics for partition in topic.partitions
        )

    def forget(self) -> None:
        """Nothing is assigned any more; what the application has is for :meth:`give_up`."""
        self._assigned = self._reconciled = None

    def next_step(self) -> Revoke | Assign | None:
        """Return what the application is to do next, when it is not doing anything: giving up comes first."""
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
        """Return the command to give up everything, if there is anything."""
        return self._revoke(self.current, lost=lost) if self.current else None

    def served(self, rebalance_id: int) -> None:
        """The application has dealt with a command."""
        if self._handover.served(rebalance_id):
            self.current -= self._revoking
            self._revoking = frozenset()

    def check_invariants(self) -> None:
        """Raise AssertionError when what the application has is not what is kept of it by id."""
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
    """Return partitions as a heartbeat carries them."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return pb.MemberTopics(
        topics=[pb.MemberTopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()]
    )
