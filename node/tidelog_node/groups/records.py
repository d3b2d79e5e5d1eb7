"""The keys and values of __consumer_offsets records in Kafka's binary formats.

A key begins with its type, int16: 0 and 1 are committed offsets, 2 is a group of the classic protocol, 3 to 8 and 16
are the parts of a KIP-848 group. A value begins with its version, int16. The schemas are Kafka's, in
group-coordinator/src/main/resources/common/message: OffsetCommitKey.json, GroupMetadataValue.json and so on. Offsets
and classic groups are written in version 3, the last version without tagged fields, and everything else in version 0.
"""

from __future__ import annotations

from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_node.groups.consumer_value_formats import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    read_current_member_assignment,
    read_group,
    read_member_metadata,
    read_partition_metadata,
    read_regular_expression,
    read_target_assignment_member,
    read_target_assignment_metadata,
)
from tidelog_node.groups.value_formats import (
    GroupMetadataValue,
    OffsetCommitValue,
    read_group_metadata,
    read_offset_commit,
)
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.wire import Reader, Writer


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """The key of a classic group, including its members."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    """The key of a KIP-848 group. The record exists as long as the group does."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """The key of a group's topic metadata. Kafka wrote this record before 4.1 and now only deletes it."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    """The key of a member's subscription and client metadata."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The key of the epoch of a group's target assignment."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment and epoch."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    """The key of the topics that a regular expression of a group's members matches."""

    group: str
    regular_expression: str


Key: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

Value: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


_LEGACY_OFFSET_COMMIT = 0
_TYPE_IDS: dict[type[Key], int] = {
    OffsetCommitKey: 1,
    GroupMetadataKey: 2,
    ConsumerGroupMetadataKey: 3,
    ConsumerGroupPartitionMetadataKey: 4,
    ConsumerGroupMemberMetadataKey: 5,
    ConsumerGroupTargetAssignmentMetadataKey: 6,
    ConsumerGroupTargetAssignmentMemberKey: 7,
    ConsumerGroupCurrentMemberAssignmentKey: 8,
    ConsumerGroupRegularExpressionKey: 16,
}
_OFFSET_TYPES = (b"\x00\x00", b"\x00\x01")
_GROUP_TYPES = (b"\x00\x02", b"\x00\x03")
_OF_GROUP: dict[int, type[Key]] = {
    2: GroupMetadataKey,
    3: ConsumerGroupMetadataKey,
    4: ConsumerGroupPartitionMetadataKey,
    6: ConsumerGroupTargetAssignmentMetadataKey,
}
_OF_PART: dict[int, type[Key]] = {
    5: ConsumerGroupMemberMetadataKey,
    7: ConsumerGroupTargetAssignmentMemberKey,
    8: ConsumerGroupCurrentMemberAssignmentKey,
    16: ConsumerGroupRegularExpressionKey,
}
_READERS = {
    OffsetCommitKey: read_offset_commit,
    GroupMetadataKey: read_group_metadata,
    ConsumerGroupMetadataKey: read_group,
    ConsumerGroupPartitionMetadataKey: read_partition_metadata,
    ConsumerGroupMemberMetadataKey: read_member_metadata,
    ConsumerGroupTargetAssignmentMetadataKey: read_target_assignment_metadata,
    ConsumerGroupTargetAssignmentMemberKey: read_target_assignment_member,
    ConsumerGroupCurrentMemberAssignmentKey: read_current_member_assignment,
    ConsumerGroupRegularExpressionKey: read_regular_expression,
}


def encode(key: Key, value: Value | None) -> ShardRecord:
    """Return the record. A value of None deletes the key.

    Raises:
        ValueError: A name exceeds the 32767 bytes of Kafka's strings, or a topic id does not have 16 bytes.
    """
    return ShardRecord(encode_key(key), None if value is None else value.encode())


def encode_key(key: Key) -> bytes:
    """Return the key's bytes.

    Raises:
        ValueError: For the same reasons as :func:`encode`.
    """
    writer = Writer()
    writer.int16(_TYPE_IDS[type(key)])
    writer.string(key.group)
    match key:
        case OffsetCommitKey():
            writer.string(key.topic)
            writer.int32(key.partition)
        case ConsumerGroupRegularExpressionKey():
            writer.string(key.regular_expression)
        case (
            ConsumerGroupMemberMetadataKey()
            | ConsumerGroupTargetAssignmentMemberKey()
            | ConsumerGroupCurrentMemberAssignmentKey()
        ):
            writer.string(key.member_id)
    return bytes(writer)


def decode(record: ShardRecord) -> tuple[Key, Value | None] | None:
    """Return the key and the value; the value is None if the record deletes the key.

    Return None for a record of an unknown type or of a version from a later Kafka. Readers of the log skip such
    records.

    Raises:
        ValueError: The bytes are truncated or corrupt. The message gives the position.
    """
    key = decode_key(record.key)
    if key is None or record.value is None:
        return None if key is None else (key, None)
    value = _READERS[type(key)](Reader(record.value))
    return None if value is None else (key, value)


def decode_key(data: bytes) -> Key | None:
    """Return the key, or None if its type is unknown.

    Raises:
        ValueError: The bytes are truncated or corrupt.
    """
    reader = Reader(data)
    type_id = reader.int16()
    if type_id in (_LEGACY_OFFSET_COMMIT, _TYPE_IDS[OffsetCommitKey]):
        return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
    if of_group := _OF_GROUP.get(type_id):
        return of_group(reader.string())  # type: ignore[call-arg]
    if of_part := _OF_PART.get(type_id):
        return of_part(reader.string(), reader.string())  # type: ignore[call-arg]
    return None


def is_offset_key(data: bytes) -> bool:
    """Return whether a key is that of a committed offset; only the type is read."""
    return data[:2] in _OFFSET_TYPES


def is_group_key(data: bytes) -> bool:
    """Return whether a record with this key states that a group of either protocol exists."""
    return data[:2] in _GROUP_TYPES
