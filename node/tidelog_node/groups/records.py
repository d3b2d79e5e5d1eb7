"""The keys and values of __consumer_offsets in Kafka's binary formats: what each record says, and its bytes.

A key begins with its type, int16: 0 and 1 are committed offsets, 2 a group of the classic protocol, 3 to 8 and 16 the
parts of a group of KIP-848's. A value begins with its version, int16. The schemas are Kafka's, in
group-coordinator/src/main/resources/common/message: OffsetCommitKey.json, GroupMetadataValue.json and so on. Written
are offsets and classic groups in version 3, the last without tagged fields, and all else in version 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog_node.groups.consumer_value_formats import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartitions,
    read_current_member_assignment,
    read_group,
    read_member_metadata,
    read_partition_metadata,
    read_regular_expression,
    read_target_assignment_member,
    read_target_assignment_metadata,
)
from tidelog_node.groups.events import GroupRecord
from tidelog_node.groups.value_formats import (
    GroupMetadataMember,
    GroupMetadataValue,
    OffsetCommitValue,
    read_group_metadata,
    read_offset_commit,
)
from tidelog_node.groups.wire import Reader, Writer

__all__ = [
    "ClassicMemberMetadata",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupMetadataKey",
    "GroupMetadataMember",
    "GroupMetadataValue",
    "Key",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TopicPartitions",
    "Value",
    "decode",
    "decode_key",
    "encode",
    "encode_key",
    "group_of",
    "is_group_key",
    "is_offset_key",
]


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """Of a committed offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """Of a group of the classic protocol, its members included."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    """Of a group of KIP-848's protocol; there is one as long as the group is."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """Of the topics that a group knew; Kafka wrote it before 4.1 and only deletes it now."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    """Of what a member says of itself."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """Of the epoch of a group's target assignment."""

    group: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """Of what a member is to own in the end."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """Of what a member owns, and its epoch."""

    group: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    """Of what a regular expression of a group's members has resolved to."""

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


def encode(key: Key, value: Value | None) -> GroupRecord:
    """Return the record; a value None deletes the key.

    Raises:
        ValueError: a name is longer than the 32767 bytes that Kafka's strings have, or a topic id has not 16 bytes.
    """
    return GroupRecord(encode_key(key), None if value is None else value.encode())


def encode_key(key: Key) -> bytes:
    """Return the key's bytes.

    Raises:
        ValueError: as :func:`encode`.
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


def decode(record: GroupRecord) -> tuple[Key, Value | None] | None:
    """Return the key and the value, None where the record deletes the key.

    None for a record of another type, or in a version from a later Kafka: who reads the log passes over it.

    Raises:
        ValueError: the bytes are torn or changed; the sentence says where.
    """
    key = decode_key(record.key)
    if key is None or record.value is None:
        return None if key is None else (key, None)
    value = _READERS[type(key)](Reader(record.value))
    return None if value is None else (key, value)


def decode_key(data: bytes) -> Key | None:
    """Return the key; None for a type that is not known.

    Raises:
        ValueError: the bytes are torn or changed.
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
    """Return whether a key is that of a committed offset, without a look at the rest of it."""
    return data[:2] in _OFFSET_TYPES


def is_group_key(data: bytes) -> bool:
    """Return whether a record with this key says that there is a group, of either protocol."""
    return data[:2] in _GROUP_TYPES


def group_of(key: bytes) -> str:
    """Return the id of the group that a record is of; all of Kafka's types have it first.

    Raises:
        ValueError: the bytes are no key of a group.
    """
    reader = Reader(key)
    reader.int16()
    return reader.string()
