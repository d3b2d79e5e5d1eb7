"""Conversions between classic groups and consumer groups that have members (KIP-848, "Online Migration").

A group is in one of these states. Each event leads to the next state:

================  ==============================================================  ==========================
state             event                                                           next state
================  ==============================================================  ==========================
classic, empty    a member joins by ConsumerGroupHeartbeat                        consumer
classic           the same; the policy allows upgrades, all members are           consumer, mixed
                  consumers, and group.consumer.max.size has room for them
classic           the same; otherwise                                             refused: GROUP_ID_NOT_FOUND
consumer, empty   a member joins by JoinGroup                                     classic
consumer          a member joins by JoinGroup and shares a protocol with the      consumer, mixed
                  classic members
consumer, mixed   the last member of the consumer protocol leaves or is removed;  classic, rebalancing
                  the policy allows downgrades, and group.max.size has room for
                  the others
consumer, mixed   the same, but it joins by JoinGroup as a static member          classic, rebalancing unless
                                                                                  all own their targets
consumer, mixed   the same; otherwise                                             consumer, of classic members
================  ==============================================================  ==========================

A conversion is one batch: the tombstones of the old group, then the records of the new one. It keeps the committed
offsets, the members and their assignments. On an upgrade the generation becomes the epoch of the group and of every
member; on a downgrade the group's epoch becomes the generation. Members that wait for JoinGroup or SyncGroup during an
upgrade receive REBALANCE_IN_PROGRESS and then join the consumer group.

Sources: Kafka's ``validateOnlineUpgrade``, ``ConsumerGroup.fromClassicGroup``,
``validateOnlineDowngradeWithFencedMembers`` and ``ClassicGroup.fromConsumerGroup``. Tidelog is stricter than Kafka in
two cases. After an upgrade a cooperative member owns its assignment and also the partitions that it claimed when it
joined, until it joins again; Kafka uses the assignment alone. A downgraded group that must rebalance is written without
a leader, so that a coordinator that loads it resumes the rebalance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.classic import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.consumer import Record
from tidelog_node.groups.consumer.assignors import Assignment, TopicPartition
from tidelog_node.groups.consumer.classic_members import with_ids, with_names
from tidelog_node.groups.consumer.member import ConsumerGroupMember, MemberState, by_topic
from tidelog_node.groups.consumer.state import GroupState
from tidelog_node.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    encode_assignment,
    read_assignment,
    read_subscription,
)
from tidelog_node.groups.consumer_value_formats import ClassicMemberMetadata
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog_node.groups.settings import GroupSettings

_ASSIGNORS_WITHOUT_DATA = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors whose members need no user data. librdkafka copies the subscription's user data into the assignment."""


def upgraded(
    group: ClassicGroup, topics: Mapping[str, TopicInfo], settings: GroupSettings, wall_ms: int
) -> list[Record]:
    """Return the records of a classic group with members as a consumer group.

    Raises:
        TidelogError: GROUP_ID_NOT_FOUND: the group cannot be upgraded.
    """
    _check_upgrade(group, settings)
    classic = group.members.values()
    try:
        subscriptions = {member.member_id: read_subscription(_metadata(group, member)) for member in classic}
        claims = {m.member_id: _claim(group, m, subscriptions[m.member_id], topics) for m in classic}
    except ValueError as error:
        raise _not_upgraded(group, f"what its members say cannot be read: {error}") from error
    assigned = _without_conflicts({member_id: claim.assigned for member_id, claim in claims.items()})
    taken = frozenset[TopicPartition]().union(*assigned.values())
    unrevoked = _without_conflicts({m: (generation, owned - taken) for m, (_, (generation, owned)) in claims.items()})
    members = [
        _consumer_member(group, m, subscriptions[m.member_id], assigned[m.member_id], unrevoked[m.member_id])
        for m in classic
    ]
    return _records(group, members, wall_ms)


def downgraded(
    state: GroupState,
    leaving: Collection[str],
    topics: Mapping[str, TopicInfo],
    settings: GroupSettings,
    wall_ms: int,
) -> ClassicGroup | None:
    """Return a consumer group without the leaving members as a classic group, or None if no downgrade is due.

    The group is Stable. It must rebalance at once if members leave or if a member does not own all of its target.
    """
    members = [member for member_id, member in sorted(state.members.items()) if member_id not in leaving]
    if not members or not all(member.uses_classic for member in members):
        return None
    if not settings.consumer_migration_policy.allows_downgrade or len(members) > settings.group_max_size:
        return None
    group = ClassicGroup(state.group_id, ClassicState.STABLE, wall_ms)
    for member in members:
        group.add(_classic_member(member), CONSUMER_PROTOCOL_TYPE)
    if not group.shared_protocols():
        return None
    group.generation = group.assigned_generation = state.group_epoch
    group.protocol_name = group.select_protocol()
    group.subscribed_topics = group.find_subscribed_topics()
    group.must_rebalance = bool(leaving) or not all(_is_settled(state, member) for member in members)
    for each in group.members.values():
        target = state.targets.get(each.member_id, frozenset())
        version = read_subscription(each.metadata(group.protocol_name)).version
        each.assignment = encode_assignment(with_names(target, topics), version)
    return group


def may_upgrade(group: ClassicGroup, settings: GroupSettings) -> bool:
    """Return whether the settings allow an upgrade of a classic group that has members."""
    try:
        _check_upgrade(group, settings)
    except TidelogError:
        return False
    return not group.is_empty


def _check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    if not settings.consumer_migration_policy.allows_upgrade:
        policy = settings.consumer_migration_policy
        raise _not_upgraded(group, f"group.consumer.migration.policy is {policy}")
    if not group.uses_consumer_protocol:
        raise _not_upgraded(group, f"its members have the protocol type {group.protocol_type!r}")
    if len(group.members) > settings.consumer_max_size:
        text = f"it has {len(group.members)} members, and group.consumer.max.size is {settings.consumer_max_size}"
        raise _not_upgraded(group, text)


def _not_upgraded(group: ClassicGroup, reason: str) -> TidelogError:
    text = f"classic group {group.group_id} cannot become a consumer group: {reason}"
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, text)


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    return member.protocols[0][1] if group.protocol_name is None else member.metadata(group.protocol_name)


class _Claim(NamedTuple):
    """The partitions that a member is assigned and those that it claimed when it joined, each with a generation."""

    assigned: tuple[int, Assignment]
    owned: tuple[int, Assignment]


def _claim(
    group: ClassicGroup, member: ClassicMember, subscription: Subscription, topics: Mapping[str, TopicInfo]
) -> _Claim:
    """Return the partitions that a member may own.

    A cooperative member may still own partitions that are not in its assignment. The assignment may be withdrawn during
    a rebalance; the member then keeps the partitions that it had.
    """
    partitions, user_data = read_assignment(member.assignment)
    if user_data and group.protocol_name not in _ASSIGNORS_WITHOUT_DATA:
        raise _not_upgraded(group, f"the assignor {group.protocol_name} gives its members data of its own")
    owned = subscription.generation, with_ids(subscription.owned, topics)
    if member.assignment or group.state is ClassicState.STABLE:
        return _Claim((group.generation, with_ids(partitions, topics)), owned)
    return _Claim(owned, owned)


def _without_conflicts(claims: Mapping[str, tuple[int, Assignment]]) -> dict[str, Assignment]:
    """Return each member's partitions. If two members claim one, the later generation wins, then the first member."""
    owners: dict[TopicPartition, str] = {}
    for member_id, (generation, partitions) in claims.items():
        for partition in partitions:
            owner = owners.get(partition)
            if owner is None or claims[owner][0] < generation:
                owners[partition] = member_id
    return {
        member_id: frozenset(partition for partition in partitions if owners[partition] == member_id)
        for member_id, (_, partitions) in claims.items()
    }


def _consumer_member(
    group: ClassicGroup,
    member: ClassicMember,
    subscription: Subscription,
    assigned: Assignment,
    unrevoked: Assignment,
) -> ConsumerGroupMember:
    metadata = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=subscription.topics,
        subscribed_topic_regex=None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=None,
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
    )
    state = MemberState.UNREVOKED_PARTITIONS if unrevoked else MemberState.STABLE
    epoch = group.generation
    return ConsumerGroupMember(member.member_id, metadata, epoch, epoch, state, assigned, unrevoked)


def _records(group: ClassicGroup, members: Collection[ConsumerGroupMember], wall_ms: int) -> list[Record]:
    """Return the records, in Kafka's order, of a consumer group whose members own their targets."""
    group_id, epoch = group.group_id, group.generation
    records: list[Record] = [(ConsumerGroupMemberMetadataKey(group_id, m.member_id), m.metadata) for m in members]
    records.append((ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, 0, wall_ms)))
    for member in members:
        target = ConsumerGroupTargetAssignmentMemberValue(by_topic(member.assigned))
        records.append((ConsumerGroupTargetAssignmentMemberKey(group_id, member.member_id), target))
    target_epoch = ConsumerGroupTargetAssignmentMetadataValue(epoch, wall_ms)
    records.append((ConsumerGroupTargetAssignmentMetadataKey(group_id), target_epoch))
    for member in members:
        key = ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id)
        records.append((key, member.current_assignment()))
    return records


def _is_settled(state: GroupState, member: ConsumerGroupMember) -> bool:
    """Return whether a member owns exactly its target assignment at the group's epoch."""
    return member.is_reconciled_to(state.group_epoch) and member.assigned == state.targets.get(member.member_id)


def _classic_member(member: ConsumerGroupMember) -> ClassicMember:
    metadata, classic = member.metadata, member.metadata.classic
    assert classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.supported_protocols,
    )
