"""The records of one request during its processing, and the state that results from their replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidelog_node.groups.consumer.assignors import Assignment, TopicPartition
from tidelog_node.groups.consumer.member import ConsumerGroupMember, by_topic
from tidelog_node.groups.consumer.state import NO_METADATA, GroupState, Record, member_tombstones
from tidelog_node.groups.messages import MayDescribe
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class Draft:
    """Changes over a :class:`GroupState`, which is not modified; used for one request. Records contain ``wall_ms``.

    Regular expressions find only topics that the caller of the request ``may_describe``, as in Kafka.
    """

    def __init__(self, state: GroupState, wall_ms: int, may_describe: MayDescribe | None = None) -> None:
        self.wall_ms = wall_ms
        self.may_describe = may_describe
        self._state = state
        self._group_id = state.group_id
        self._changed: dict[str, ConsumerGroupMember | None] = {}
        self._targets: dict[str, Assignment] = {}
        self.records: list[Record] = []
        self.metadata = state.metadata or NO_METADATA
        self.assignment_epoch = state.assignment_epoch
        self.regular_expressions: Mapping[str, ConsumerGroupRegularExpressionValue] = state.regular_expressions

    def members(self) -> dict[str, ConsumerGroupMember]:
        """Return the members after the changes."""
        changed = {**self._state.members, **self._changed}
        return {member_id: member for member_id, member in changed.items() if member is not None}

    def member(self, member_id: str) -> ConsumerGroupMember | None:
        """Return a member after the changes."""
        return self._changed[member_id] if member_id in self._changed else self._state.members.get(member_id)

    def target_of(self, member_id: str) -> Assignment:
        """Return a member's target assignment."""
        target = self._targets.get(member_id)
        return self._state.targets.get(member_id, frozenset()) if target is None else target

    def owner_of(self, partition: TopicPartition) -> str | None:
        """Return the member that owns a partition or must revoke it after the changes, or None if it is free."""
        owner = self._state.owner_of(partition)
        member = None if owner is None else self.member(owner)
        if member is None or partition not in member.assigned | member.pending_revocation:
            return None
        return owner

    def remove(self, member_id: str) -> None:
        """Delete a member with all its partitions."""
        self.records.extend(member_tombstones(self._group_id, member_id))
        self._changed[member_id] = None
        self._targets[member_id] = frozenset()

    def put_metadata(self, member: ConsumerGroupMember) -> None:
        """Add the record of a member's metadata."""
        self.records.append((ConsumerGroupMemberMetadataKey(self._group_id, member.member_id), member.metadata))
        self._changed[member.member_id] = member

    def put_current(self, member: ConsumerGroupMember) -> None:
        """Add the record of a member's current assignment and epoch."""
        key = ConsumerGroupCurrentMemberAssignmentKey(self._group_id, member.member_id)
        self.records.append((key, member.current_assignment()))
        self._changed[member.member_id] = member

    def put_target(self, member_id: str, target: Assignment) -> None:
        """Add the record of a member's target assignment."""
        key = ConsumerGroupTargetAssignmentMemberKey(self._group_id, member_id)
        self.records.append((key, ConsumerGroupTargetAssignmentMemberValue(by_topic(target))))
        self._targets[member_id] = target

    def put_target_epoch(self) -> None:
        """Add the record that sets the epoch of the target assignment to the group's epoch."""
        self.assignment_epoch = self.metadata.epoch
        value = ConsumerGroupTargetAssignmentMetadataValue(self.assignment_epoch, self.wall_ms)
        self.records.append((ConsumerGroupTargetAssignmentMetadataKey(self._group_id), value))

    def put_regular_expressions(self, resolved: Mapping[str, ConsumerGroupRegularExpressionValue]) -> None:
        """Add the records of the regular expressions whose resolved topics have changed."""
        for pattern, value in resolved.items():
            if self.regular_expressions.get(pattern) != value:
                self.records.append((ConsumerGroupRegularExpressionKey(self._group_id, pattern), value))
        for pattern in self.regular_expressions:
            if pattern not in resolved:
                self.records.append((ConsumerGroupRegularExpressionKey(self._group_id, pattern), None))
        self.regular_expressions = resolved

    def bump_epoch(self, metadata_hash: int) -> None:
        """Begin a new group epoch."""
        if self._state.metadata is None:
            self.metadata = ConsumerGroupMetadataValue(1, metadata_hash, self.wall_ms)
        else:
            self.metadata = replace(self.metadata, epoch=self.metadata.epoch + 1, metadata_hash=metadata_hash)
        self.records.append((ConsumerGroupMetadataKey(self._group_id), self.metadata))
