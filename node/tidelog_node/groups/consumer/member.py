"""A member of a consumer group: its metadata, its epoch and the partitions that it owns."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import replace

from tidelog_foundation.dataclass import dataclass
from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.consumer_value_formats import TopicPartitions
from tidelog_node.groups.records import ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue

JOINING_EPOCH = 0
LEAVE_GROUP_EPOCH = -1
LEAVE_GROUP_STATIC_EPOCH = -2
"""Kafka's LEAVE_GROUP_STATIC_MEMBER_EPOCH: the static member is away and keeps its partitions."""

_NO_METADATA = ConsumerGroupMemberMetadataValue(None, None, "", "", (), None, -1, None)


class MemberState(enum.IntEnum):
    """A member's progress towards its target assignment, with the numbers that records use (Kafka's MemberState)."""

    STABLE = 0
    """It owns its target assignment at its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it reaches the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It has reached the epoch and waits for partitions that other members have not revoked yet."""
    UNKNOWN = 127
    """Any other number, from a later version."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member. It is immutable; a change creates a new object.

    ``assigned`` and ``pending_revocation`` are disjoint; the member owns both.
    """

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue = _NO_METADATA
    member_epoch: int = JOINING_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = frozenset()
    pending_revocation: Assignment = frozenset()

    @property
    def uses_classic(self) -> bool:
        """True if the member uses JoinGroup, SyncGroup and Heartbeat."""
        return self.metadata.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member owns its target assignment at the epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at(self, member_epoch: int, state: MemberState, assigned: Assignment) -> ConsumerGroupMember:
        """Return the member at an epoch, with nothing to revoke."""
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=frozenset(),
        )

    def owning(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerGroupMember:
        """Return the member with the assignment of a record.

        A deleted record leaves it with nothing and outside the group.
        """
        if value is None:
            return ConsumerGroupMember(self.member_id, self.metadata, LEAVE_GROUP_EPOCH, LEAVE_GROUP_EPOCH)
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of(value.assigned_partitions),
            pending_revocation=partitions_of(value.partitions_pending_revocation),
        )

    def current_assignment(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the record of the member's current assignment."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=by_topic(self.assigned),
            partitions_pending_revocation=by_topic(self.pending_revocation),
        )


def by_topic(partitions: Assignment) -> tuple[TopicPartitions, ...]:
    """Return partitions in ascending order, in the form that records use."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return tuple(TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in topics.items())


def partitions_of(topics: Iterable[TopicPartitions]) -> Assignment:
    """Return the partitions of a record."""
    return frozenset((topic.topic_id, partition) for topic in topics for partition in topic.partitions)
