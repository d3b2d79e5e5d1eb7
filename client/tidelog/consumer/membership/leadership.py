"""The role of a classic group's leader: it knows the topics of all members and divides their partitions."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.consumer.assignors import (
    Assignor,
    KnownTopic,
    Member,
    Subscription,
    decode_subscription,
    encode_assignment,
)
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError


class Leadership:
    """One membership's leadership. ``topics`` are those of all members, empty while another member leads.

    The leader remembers the number of partitions it assigned; when that changes, the group must rebalance.
    ``is_partial`` tells that some have no owner in this generation: a cooperative assignor leaves them to the next one,
    which begins when their former owners have released them.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self._members: list[Member] = []
        self._known: Mapping[str, KnownTopic] = {}
        self.is_informed = False
        """True if metadata has arrived since the topics changed."""
        self._assigned: dict[str, int] | None = None
        self.is_partial = False

    @property
    def is_outdated(self) -> bool:
        """True if the partition counts differ from those assigned."""
        return self._assigned is not None and self._assigned != self._counts()

    def begin(self, members: list[pb.JoinGroupMember]) -> list[TidelogError]:
        """Begin a new generation with its members; return the errors of members whose subscriptions are unreadable."""
        errors: list[TidelogError] = []
        self._members = []
        for member in members:
            try:
                subscription = decode_subscription(member.metadata)
            except TidelogError as error:
                errors.append(error)
                subscription = Subscription(frozenset())
            instance_id = member.group_instance_id if member.HasField("group_instance_id") else None
            self._members.append(Member(member.member_id, subscription, instance_id))
        topics = frozenset[str]().union(*(member.subscription.topics for member in self._members))
        self.is_informed = self.is_informed and topics == self.topics
        self.topics = topics
        return errors

    def learn(self, topics: Mapping[str, KnownTopic]) -> None:
        """Store the topics' metadata."""
        self._known = topics
        self.is_informed = True

    def assign(self, assignor: Assignor) -> list[pb.MemberAssignment]:
        """Divide the partitions that are known now."""
        counts = self._counts()
        assignment = assignor.assign({topic: self._known[topic] for topic in counts}, self._members)
        self._assigned = counts
        self.is_partial = sum(map(len, assignment.values())) < sum(counts.values())
        return [
            pb.MemberAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assignment.items()
        ]

    def accept(self, assignor: Assignor) -> None:
        """Record the current topics as assigned, because the previous assignment stands (KIP-814).

        Only the member that made that assignment knew if it was partial.
        """
        self._assigned = self._counts()
        self.is_partial = assignor.is_cooperative

    def end(self) -> None:
        """Clear the state when another member leads."""
        self.topics = frozenset()
        self._members = []
        self.is_informed = False
        self._assigned = None
        self.is_partial = False

    def _counts(self) -> dict[str, int]:
        return {topic: self._known[topic].partitions for topic in self.topics if topic in self._known}
