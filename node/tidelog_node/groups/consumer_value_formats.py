"""The values of KIP-848's records in __consumer_offsets: their fields, encoding and decoding.

A reader returns None for an unknown version.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_node.groups.value_formats import NO_TIMESTAMP
from tidelog_node.shards.wire import Reader, Writer

_VERSION = 0
_CLASSIC_TAG = 0


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of a topic in ascending order.

    ``assignment_epochs``, if recorded, are aligned with them (KIP-1251).
    """

    topic_id: bytes
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    """The group's epoch, and the hash of its subscribed topics, 0 if there is none (KIP-1101).

    ``creation_time_ms`` is the time of the group's creation (KIP-1282), -1 if unknown.
    """

    epoch: int
    metadata_hash: int = 0
    creation_time_ms: int = NO_TIMESTAMP

    def encode(self) -> bytes:
        """Return the bytes."""
        writer = _flexible()
        writer.int32(self.epoch)
        tags = {0: _int64(self.metadata_hash)} if self.metadata_hash else {}
        if self.creation_time_ms != NO_TIMESTAMP:
            tags[1] = _int64(self.creation_time_ms)
        writer.tags(tags)
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataValue:
    """A group's topics as older versions of Kafka wrote them. None of it is used."""

    def encode(self) -> bytes:
        """Return the bytes of a value without topics."""
        writer = _flexible()
        writer.compact_array((), writer.int32)
        writer.tags()
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """The classic protocol's part of a member: its session timeout, and its protocols with metadata in order of
    preference.
    """

    session_timeout_ms: int
    supported_protocols: tuple[tuple[str, bytes], ...]

    def encode(self) -> bytes:
        """Return the bytes of a nullable struct, the form of the tagged field."""
        writer = Writer()
        writer.unsigned_varint(1)
        writer.int32(self.session_timeout_ms)
        writer.compact_array(self.supported_protocols, lambda protocol: _write_protocol(writer, *protocol))
        writer.tags()
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    """A consumer group member's subscription and client metadata. The names are in ascending order.

    ``classic`` is None unless the member uses the classic protocol.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberMetadata | None = None

    def encode(self) -> bytes:
        """Return the bytes."""
        writer = _flexible()
        for text in (self.instance_id, self.rack_id, self.client_id, self.client_host):
            writer.compact_string(text)
        writer.compact_array(self.subscribed_topic_names, writer.compact_string)
        writer.compact_string(self.subscribed_topic_regex)
        writer.int32(self.rebalance_timeout_ms)
        writer.compact_string(self.server_assignor)
        writer.tags({} if self.classic is None else {_CLASSIC_TAG: self.classic.encode()})
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch of the target assignment and the time of its computation (KIP-1263), 0 if unknown."""

    assignment_epoch: int
    assignment_timestamp: int = 0

    def encode(self) -> bytes:
        """Return the bytes."""
        writer = _flexible()
        writer.int32(self.assignment_epoch)
        writer.tags({0: _int64(self.assignment_timestamp)} if self.assignment_timestamp else {})
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberValue:
    """A member's target assignment."""

    topic_partitions: tuple[TopicPartitions, ...]

    def encode(self) -> bytes:
        """Return the bytes."""
        writer = _flexible()
        writer.compact_array(self.topic_partitions, lambda topic: _write_topic(writer, topic))
        writer.tags()
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a member owns and those that it must revoke. ``state`` is a number of Kafka's MemberState."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...]
    partitions_pending_revocation: tuple[TopicPartitions, ...]

    def encode(self) -> bytes:
        """Return the bytes."""
        writer = _flexible()
        writer.int32(self.member_epoch)
        writer.int32(self.previous_member_epoch)
        writer.int8(self.state)
        for topics in (self.assigned_partitions, self.partitions_pending_revocation):
            writer.compact_array(topics, lambda topic: _write_topic(writer, topic))
        writer.tags()
        return bytes(writer)


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that a regular expression matches, the version of the metadata, and the time of the match."""

    topics: tuple[str, ...]
    version: int
    timestamp: int

    def encode(self) -> bytes:
        """Return the bytes."""
        writer = _flexible()
        writer.compact_array(self.topics, writer.compact_string)
        writer.int64(self.version)
        writer.int64(self.timestamp)
        writer.tags()
        return bytes(writer)


def read_group(reader: Reader) -> ConsumerGroupMetadataValue | None:
    """Read version 0."""
    if reader.int16() != _VERSION:
        return None
    epoch = reader.int32()
    tags = reader.tags()
    metadata_hash = Reader(tags[0]).int64() if 0 in tags else 0
    return ConsumerGroupMetadataValue(epoch, metadata_hash, Reader(tags[1]).int64() if 1 in tags else NO_TIMESTAMP)


def read_partition_metadata(reader: Reader) -> ConsumerGroupPartitionMetadataValue | None:
    """Read version 0 and ignore its content."""
    return ConsumerGroupPartitionMetadataValue() if reader.int16() == _VERSION else None


def read_member_metadata(reader: Reader) -> ConsumerGroupMemberMetadataValue | None:
    """Read version 0."""
    if reader.int16() != _VERSION:
        return None
    return ConsumerGroupMemberMetadataValue(
        instance_id=reader.nullable_compact_string(),
        rack_id=reader.nullable_compact_string(),
        client_id=reader.compact_string(),
        client_host=reader.compact_string(),
        subscribed_topic_names=reader.compact_array(reader.compact_string),
        subscribed_topic_regex=reader.nullable_compact_string(),
        rebalance_timeout_ms=reader.int32(),
        server_assignor=reader.nullable_compact_string(),
        classic=_read_classic(reader.tags().get(_CLASSIC_TAG)),
    )


def _read_classic(data: bytes | None) -> ClassicMemberMetadata | None:
    reader = Reader(data or b"\0")
    if reader.unsigned_varint() == 0:
        return None
    return ClassicMemberMetadata(reader.int32(), reader.compact_array(lambda: _read_protocol(reader)))


def read_target_assignment_metadata(reader: Reader) -> ConsumerGroupTargetAssignmentMetadataValue | None:
    """Read version 0."""
    if reader.int16() != _VERSION:
        return None
    epoch = reader.int32()
    tags = reader.tags()
    return ConsumerGroupTargetAssignmentMetadataValue(epoch, Reader(tags[0]).int64() if 0 in tags else 0)


def read_target_assignment_member(reader: Reader) -> ConsumerGroupTargetAssignmentMemberValue | None:
    """Read version 0."""
    if reader.int16() != _VERSION:
        return None
    return ConsumerGroupTargetAssignmentMemberValue(reader.compact_array(lambda: _read_topic(reader)))


def read_current_member_assignment(reader: Reader) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    """Read version 0."""
    if reader.int16() != _VERSION:
        return None
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=reader.int32(),
        previous_member_epoch=reader.int32(),
        state=reader.int8(),
        assigned_partitions=reader.compact_array(lambda: _read_topic(reader)),
        partitions_pending_revocation=reader.compact_array(lambda: _read_topic(reader)),
    )


def read_regular_expression(reader: Reader) -> ConsumerGroupRegularExpressionValue | None:
    """Read version 0."""
    if reader.int16() != _VERSION:
        return None
    topics = reader.compact_array(reader.compact_string)
    return ConsumerGroupRegularExpressionValue(topics, reader.int64(), reader.int64())


def _flexible() -> Writer:
    writer = Writer()
    writer.int16(_VERSION)
    return writer


def _write_protocol(writer: Writer, name: str, metadata: bytes) -> None:
    writer.compact_string(name)
    writer.compact_bytes(metadata)
    writer.tags()


def _read_protocol(reader: Reader) -> tuple[str, bytes]:
    protocol = reader.compact_string(), reader.compact_bytes()
    reader.tags()
    return protocol


def _int64(number: int) -> bytes:
    writer = Writer()
    writer.int64(number)
    return bytes(writer)


def _write_topic(writer: Writer, topic: TopicPartitions) -> None:
    writer.uuid(topic.topic_id)
    writer.compact_array(topic.partitions, writer.int32)
    tags = {}
    if topic.assignment_epochs is not None:
        epochs = Writer()
        epochs.compact_array(topic.assignment_epochs, epochs.int32)
        tags[0] = bytes(epochs)
    writer.tags(tags)


def _read_topic(reader: Reader) -> TopicPartitions:
    topic_id, partitions = reader.uuid(), reader.compact_array(reader.int32)
    epochs = reader.tags().get(0)
    if epochs is None:
        return TopicPartitions(topic_id, partitions)
    epoch_reader = Reader(epochs)
    return TopicPartitions(topic_id, partitions, epoch_reader.compact_array(epoch_reader.int32))
