"""The values of committed offsets and classic groups in __consumer_offsets. :mod:`.records` has the keys.

A reader returns None for an unknown version.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_node.shards.wire import Reader, Writer

_CLASSIC_VERSION = 3
_LAST_CLASSIC_VERSION = 4
_FLEXIBLE_VERSION = 4
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset. The leader epoch is -1 if unknown.

    ``expire_timestamp`` is a field of version 1, set by clients that choose their own retention, otherwise -1.
    ``topic_id`` is a field of version 4, None if unknown.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: bytes | None = None

    def encode(self) -> bytes:
        """Return the bytes in version 3, or in version 1, the only one with an expire timestamp, if there is one."""
        writer = Writer()
        expires = self.expire_timestamp != NO_TIMESTAMP
        writer.int16(1 if expires else _CLASSIC_VERSION)
        writer.int64(self.offset)
        if not expires:
            writer.int32(self.leader_epoch)
        writer.string(self.metadata)
        writer.int64(self.commit_timestamp)
        if expires:
            writer.int64(self.expire_timestamp)
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class GroupMetadataMember:
    """A member of a classic group. The coordinator does not interpret its subscription and assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A classic group as of its last complete rebalance. Protocol and leader are None if it has no members.

    ``current_state_timestamp`` is the time at which the group entered its state, -1 if unknown.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[GroupMetadataMember, ...]

    def encode(self) -> bytes:
        """Return the bytes in version 3."""
        writer = Writer()
        writer.int16(_CLASSIC_VERSION)
        writer.string(self.protocol_type)
        writer.int32(self.generation)
        writer.string(self.protocol)
        writer.string(self.leader)
        writer.int64(self.current_state_timestamp)
        writer.array(self.members, lambda member: _write_group_member(writer, member))
        return bytes(writer)


def read_offset_commit(reader: Reader) -> OffsetCommitValue | None:
    """Read versions 0 to 4."""
    version = reader.int16()
    if not 0 <= version <= _LAST_CLASSIC_VERSION:
        return None
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.compact_string() if version >= _FLEXIBLE_VERSION else reader.string()
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == 1 else NO_TIMESTAMP
    topic_id = reader.tags().get(0) if version >= _FLEXIBLE_VERSION else None
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id)


def read_group_metadata(reader: Reader) -> GroupMetadataValue | None:
    """Read versions 0 to 4."""
    version = reader.int16()
    if not 0 <= version <= _LAST_CLASSIC_VERSION:
        return None
    flexible = version >= _FLEXIBLE_VERSION
    nullable = reader.nullable_compact_string if flexible else reader.nullable_string
    array = reader.compact_array if flexible else reader.array
    return GroupMetadataValue(
        protocol_type=reader.compact_string() if flexible else reader.string(),
        generation=reader.int32(),
        protocol=nullable(),
        leader=nullable(),
        current_state_timestamp=reader.int64() if version >= 2 else NO_TIMESTAMP,
        members=array(lambda: _read_group_member(reader, version)),
    )


def _write_group_member(writer: Writer, member: GroupMetadataMember) -> None:
    writer.string(member.member_id)
    writer.string(member.group_instance_id)
    writer.string(member.client_id)
    writer.string(member.client_host)
    writer.int32(member.rebalance_timeout)
    writer.int32(member.session_timeout)
    writer.bytes_(member.subscription)
    writer.bytes_(member.assignment)


def _read_group_member(reader: Reader, version: int) -> GroupMetadataMember:
    flexible = version >= _FLEXIBLE_VERSION
    string = reader.compact_string if flexible else reader.string
    nullable = reader.nullable_compact_string if flexible else reader.nullable_string
    data = reader.compact_bytes if flexible else reader.bytes_
    member_id = string()
    instance_id = nullable() if version >= 3 else None
    client_id, client_host = string(), string()
    rebalance_timeout = reader.int32() if version >= 1 else None
    session_timeout = reader.int32()
    member = GroupMetadataMember(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 has one timeout for both, and Kafka uses it as the rebalance timeout too.
        rebalance_timeout=session_timeout if rebalance_timeout is None else rebalance_timeout,
        session_timeout=session_timeout,
        subscription=data(),
        assignment=data(),
    )
    if flexible:
        reader.tags()
    return member
