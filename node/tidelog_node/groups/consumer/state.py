"""The persistent state of a consumer group, as its records describe it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from tidelog_node.groups.consumer.assignors import Assignment, TopicPartition
from tidelog_node.groups.consumer.member import ConsumerGroupMember, partitions_of
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Key,
    Value,
)

Record: TypeAlias = tuple[Key, Value | None]
"""A key with its value. None deletes the key."""
NO_METADATA = ConsumerGroupMetadataValue(0)
NO_TARGET = ConsumerGroupTargetAssignmentMetadataValue(0)


class GroupState:
    """The state of one group. Only :meth:`replay` changes it. Records of different keys may arrive in any order.

    ``metadata`` is None before the group's first record and after its last. The group's epoch is not below that of its
    target assignment.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata: ConsumerGroupMetadataValue | None = None
        self.target_metadata = NO_TARGET
        self.members: dict[str, ConsumerGroupMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.regular_expressions: dict[str, ConsumerGroupRegularExpressionValue] = {}
        self.static_members: dict[str, str] = {}
        self._owners: dict[TopicPartition, str] = {}
        self._subscribed: frozenset[str] | None = None

    @property
    def group_epoch(self) -> int:
        """The epoch of the group, which grows by one with each change that needs a new assignment."""
        return (self.metadata or NO_METADATA).epoch

    @property
    def assignment_epoch(self) -> int:
        """The group epoch of the target assignment."""
        return self.target_metadata.assignment_epoch

    def owner_of(self, partition: TopicPartition) -> str | None:
        """Return the id of the member that owns a partition, including one that has yet to revoke it."""
        return self._owners.get(partition)

    def subscribed_topics(self) -> frozenset[str]:
        """Return the names of all topics that a member subscribes to, by name or regular expression."""
        if self._subscribed is None:
            self._subscribed = subscribed_topics(self.members, self.regular_expressions)
        return self._subscribed

    def replay(self, key: Key, value: Value | None) -> None:
        """Apply one record. Records of types outside KIP-848 are ignored."""
        match key:
            case ConsumerGroupMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMetadataValue)
                self.metadata = value
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._replay_member(member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.target_metadata = value or NO_TARGET
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                self._replay_target(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._replay_current(member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=pattern):
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                self._replay_regular_expression(pattern, value)

    def _replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        self._subscribed = None
        before = self.members.get(member_id)
        instance_id = None if before is None else before.metadata.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]
        if value is None:
            self._release(self.members.pop(member_id, None))
            return
        self.members[member_id] = replace(before or ConsumerGroupMember(member_id), metadata=value)
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def _replay_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = partitions_of(value.topic_partitions)

    def _replay_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        before = self.members.get(member_id)
        if before is None and value is None:
            return
        self._release(before)
        member = (before or ConsumerGroupMember(member_id)).owning(value)
        self.members[member_id] = member
        self._owners.update(dict.fromkeys(member.assigned | member.pending_revocation, member_id))

    def _release(self, member: ConsumerGroupMember | None) -> None:
        if member is not None:
            for partition in member.assigned | member.pending_revocation:
                if self._owners.get(partition) == member.member_id:
                    del self._owners[partition]

    def _replay_regular_expression(self, pattern: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        self._subscribed = None
        if value is None:
            self.regular_expressions.pop(pattern, None)
        else:
            self.regular_expressions[pattern] = value

    def tombstones(self) -> Iterator[Record]:
        """Yield the records that delete the group, ordered so that none refers to a deleted one."""
        for member_id in self.members:
            yield from member_tombstones(self.group_id, member_id)
        for pattern in self.regular_expressions:
            yield ConsumerGroupRegularExpressionKey(self.group_id, pattern), None
        yield ConsumerGroupTargetAssignmentMetadataKey(self.group_id), None
        yield ConsumerGroupMetadataKey(self.group_id), None

    def check_invariants(self) -> None:
        """Assert the invariants that hold between two requests."""
        owned = [(p, m.member_id) for m in self.members.values() for p in m.assigned | m.pending_revocation]
        assert len(owned) == len(self._owners), "a partition has two owners"
        assert dict(owned) == self._owners
        assert all(not member.assigned & member.pending_revocation for member in self.members.values())
        assert self.group_epoch >= self.assignment_epoch
        assert set(self.targets) <= set(self.members)
        targets = [partition for target in self.targets.values() for partition in target]
        assert len(targets) == len(set(targets)), "a partition is in two targets"
        assert all(member.member_epoch <= self.assignment_epoch for member in self.members.values())
        instances = {member.metadata.instance_id: member.member_id for member in self.members.values()}
        instances.pop(None, None)
        assert instances == self.static_members


def member_tombstones(group_id: str, member_id: str) -> Iterator[Record]:
    """Yield the records that delete a member."""
    yield ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None
    yield ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None
    yield ConsumerGroupMemberMetadataKey(group_id, member_id), None


def subscribed_topics(
    members: Mapping[str, ConsumerGroupMember],
    regular_expressions: Mapping[str, ConsumerGroupRegularExpressionValue],
) -> frozenset[str]:
    """Return the names of the topics that any of the members subscribes to. Not all of them need exist."""
    patterns = {member.metadata.subscribed_topic_regex for member in members.values()}
    names = {name for member in members.values() for name in member.metadata.subscribed_topic_names}
    resolved = [value for pattern, value in regular_expressions.items() if pattern in patterns]
    return frozenset(names).union(*(value.topics for value in resolved))
