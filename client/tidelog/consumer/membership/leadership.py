"""What the leader of a classic group does: it knows the topics of all members and divides their partitions."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.consumer.assignors import Assignor, Member, Subscription, decode_subscription, encode_assignment
from tidelog.consumer.membership.events import KnownTopic
from tidelog.v1 import group_service_pb2 as pb
from tidelog_foundation.errors import TidelogError


class Leadership:
    """One membership's. ``topics`` are those of all members; empty while it does not lead.

    The leader remembers how many partitions it assigned: when that changes the group must rebalance. ``is_partial``
    says that some have no owner in this generation: an assignor that cooperates leaves them to the next one, which
    begins when their former owners have given them up.
    """

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self._members: list[Member] = []
        self._known: Mapping[str, KnownTopic] = {}
        self._has_learned = False
        self._assigned: dict[str, int] | None = None
        self.is_partial = False

    @property
    def is_informed(self) -> bool:
        """Whether the metadata of the topics has come since they were asked for."""
        return self._has_learned

    @property
    def is_outdated(self) -> bool:
        """Whether the topics are not those any more that were assigned."""
        return self._assigned is not None and self._assigned != self._counts()

    def begin(self, members: list[pb.JoinGroupMember]) -> list[TidelogError]:
        """Take the members of a new generation; return what is wrong with those that get nothing."""
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
        self._has_learned = self._has_learned and topics == self.topics
        self.topics = topics
        return errors

    def learn(self, topics: Mapping[str, KnownTopic]) -> None:
        """Take what the metadata says."""
        self._known = topics
        self._has_learned = True

    def assign(self, assignor: Assignor) -> list[pb.MemberAssignment]:
        """Divide the partitions of what is known now."""
        counts = self._counts()
        assignment = assignor.assign({topic: self._known[topic] for topic in counts}, self._members)
        self._assigned = counts
        self.is_partial = sum(map(len, assignment.values())) < sum(counts.values())
        return [
            pb.MemberAssignment(member_id=member_id, assignment=encode_assignment(partitions))
            for member_id, partitions in assignment.items()
        ]

    def accept(self, assignor: Assignor) -> None:
        """Hold the topics as they are now for assigned (KIP-814: the former assignment stands).

        Whether that one was partial went with the member that made it.
        """
        self._assigned = self._counts()
        self.is_partial = assignor.is_cooperative

    def end(self) -> None:
        """Follow another leader."""
        self.topics = frozenset()
        self._members = []
        self._has_learned = False
        self._assigned = None
        self.is_partial = False

    def _counts(self) -> dict[str, int]:
        return {topic: self._known[topic].partitions for topic in self.topics if topic in self._known}
