"""A member of a consumer group: what it says of itself, its epoch, and the partitions that it owns."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidelog_node.groups.consumer.assignors import Assignment
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

JOINING_EPOCH = 0
LEAVE_GROUP_EPOCH = -1
LEAVE_GROUP_STATIC_EPOCH = -2
"""Kafka's LEAVE_GROUP_STATIC_MEMBER_EPOCH: the static member is away and keeps its partitions."""

_NO_METADATA = ConsumerGroupMemberMetadataValue(None, None, "", "", (), None, -1, None)


class MemberState(enum.IntEnum):
    """How far a member is on its way to the target assignment, by the numbers that records have (MemberState)."""

    STABLE = 0
    """It owns what it is to own, as of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has to give partitions up before it comes to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is at the epoch, and waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """From a later version: any other number."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member; nothing changes it, there come new ones.

    ``assigned`` and ``pending_revocation`` have no partition in common; the member owns both.
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
        """Whether the member is served by JoinGroup, SyncGroup and Heartbeat."""
        return self.metadata.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Return whether the member owns all that it is to own as of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at(self, member_epoch: int, state: MemberState, assigned: Assignment) -> ConsumerGroupMember:
        """Return the member in an epoch, with nothing to give up."""
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=frozenset(),
        )

    def owning(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerGroupMember:
        """Return the member with what a record says that it owns; nothing, out of the group, where it is deleted."""
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
        """Return the record of what the member owns."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=by_topic(self.assigned),
            partitions_pending_revocation=by_topic(self.pending_revocation),
        )


def by_topic(partitions: Assignment) -> tuple[TopicPartitions, ...]:
    """Return partitions as records have them, ascending."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return tuple(TopicPartitions(topic_id, tuple(indexes)) for topic_id, indexes in topics.items())


def partitions_of(topics: Iterable[TopicPartitions]) -> Assignment:
    """Return the partitions of a record."""
    return frozenset((topic.topic_id, partition) for topic in topics for partition in topic.partitions)
