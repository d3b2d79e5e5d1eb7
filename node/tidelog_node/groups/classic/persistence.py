"""Conversions between a classic group and its __consumer_offsets record."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_node.groups.classic.group import ClassicGroup, ClassicMember, ClassicState
from tidelog_node.groups.records import GroupMetadataKey, GroupMetadataValue, encode
from tidelog_node.groups.value_formats import NO_TIMESTAMP, GroupMetadataMember
from tidelog_node.shards.events import ShardRecord


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> ShardRecord:
    """Return the record of a group whose members have these assignments, by member id.

    A record with members but no leader marks a former consumer group that must rebalance. Kafka makes the first member
    the leader when it reads such a record.
    """
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=None if group.must_rebalance else group.leader,
        current_state_timestamp=NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=tuple(
            GroupMetadataMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ),
    )
    return encode(GroupMetadataKey(group.group_id), value)


def tombstone(group_id: str) -> ShardRecord:
    """Return the record that deletes a group."""
    return encode(GroupMetadataKey(group_id), None)


def group_of_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record. It has no deadlines yet."""
    state = ClassicState.STABLE if value.members else ClassicState.EMPTY
    timestamp_ms = value.current_state_timestamp
    group = ClassicGroup(group_id, state, None if timestamp_ms == NO_TIMESTAMP else timestamp_ms)
    group.generation = value.generation
    group.protocol_name = value.protocol
    group.must_rebalance = value.leader is None and bool(value.members)
    group.leader = value.leader if any(m.member_id == value.leader for m in value.members) else None
    for member in value.members:
        group.add(_loaded_member(member, value.protocol or ""), value.protocol_type)
    group.protocol_type = value.protocol_type or None
    group.subscribed_topics = group.find_subscribed_topics()
    return group


def _loaded_member(member: GroupMetadataMember, protocol: str) -> ClassicMember:
    timeout_ms = member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=timeout_ms,
        session_timeout_ms=member.session_timeout,
        protocols=((protocol, member.subscription),),
        assignment=member.assignment,
    )
