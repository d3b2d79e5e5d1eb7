"""Records of __transaction_state and __consumer_offsets as JSON, with the names and the order of kafka-dump-log.

The schemas are Kafka's (TransactionLogValue.json, OffsetCommitValue.json and so on) and declare every field, also those
that coordinators skip, such as a member's user data. A tagged field appears if the record has it.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_node.shards.wire import Reader
from tidelog_node.tools.findings import Value

_Read: TypeAlias = Callable[[Reader, int, bool], Value]
"""Reads a value of a version. The last argument is True if the version is flexible."""
_LAST_VERSION = 2**15 - 1
_NEVER = _LAST_VERSION + 1
DELETED = "<DELETE>"


class RecordDecoder(enum.Enum):
    """The topic whose records are decoded."""

    OFFSETS = "__consumer_offsets"
    TRANSACTIONS = "__transaction_state"


def decode_record(decoder: RecordDecoder, offset: int, key: bytes | None, value: bytes | None) -> tuple[Value, Value]:
    """Return the key and the payload of a record as JSON.

    A payload is ``<DELETE>`` for a record that deletes its key. The key is a sentence, and the payload None, if the
    record has a type or version that only a later release knows.

    Raises:
        ValueError: The record is damaged or belongs to another topic.
    """
    if key is None:
        raise ValueError(f"a record of {decoder.value} has a key")
    reader = Reader(key)
    type_id = reader.int16()
    record_type = _TYPES[decoder].get(type_id)
    if record_type is None:
        return f"Unknown record type {type_id} at offset {offset}, skipping.", None
    shown_key: Value = {"type": str(type_id), "data": _read_whole(record_type.key, reader, 0, is_flexible=False)}
    if value is None:
        return shown_key, DELETED
    reader = Reader(value)
    version = reader.int16()
    if not 0 <= version <= record_type.last_version:
        return f"Unknown version {version} of record type {type_id} at offset {offset}, skipping.", None
    is_flexible = version >= record_type.flexible
    return shown_key, {
        "version": str(version),
        "data": _read_whole(record_type.value, reader, version, is_flexible=is_flexible),
    }


def _read_whole(read: _Read, reader: Reader, version: int, *, is_flexible: bool) -> Value:
    shown = read(reader, version, is_flexible)
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes follow the end of the record")
    return shown


@dataclass(frozen=True, slots=True)
class _Type:
    """The schemas of a key and its value, with the value's last version and first flexible version."""

    key: _Read
    value: _Read
    last_version: int = 0
    flexible: int = 0


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the versions ``since`` to ``until``. A field with a tag is in flexible versions only."""

    name: str
    read: _Read
    since: int = 0
    until: int = _LAST_VERSION
    tag: int | None = None


def _struct(*fields: _Field) -> _Read:
    """Return a reader of fields that stand in order, followed by the tagged fields of a flexible version."""

    def read(reader: Reader, version: int, is_flexible: bool) -> Value:
        found = {
            field.name: field.read(reader, version, is_flexible)
            for field in fields
            if field.tag is None and field.since <= version <= field.until
        }
        tags = reader.tags() if is_flexible else {}
        found |= {
            field.name: field.read(Reader(tags[field.tag]), version, is_flexible)
            for field in fields
            if field.tag is not None and field.tag in tags
        }
        return {field.name: found[field.name] for field in fields if field.name in found}

    return read


def _array(of: _Read) -> _Read:
    """Return a reader of a list, or of null."""

    def read(reader: Reader, version: int, is_flexible: bool) -> Value:
        array = reader.nullable_compact_array if is_flexible else reader.nullable_array
        items = array(lambda: of(reader, version, is_flexible))
        return None if items is None else list(items)

    return read


def _nullable(of: _Read) -> _Read:
    """Return a reader of a tagged struct, whose first byte tells it from null."""
    return lambda reader, version, is_flexible: of(reader, version, is_flexible) if reader.unsigned_varint() else None


def _string(reader: Reader, version: int, is_flexible: bool) -> Value:
    return reader.nullable_compact_string() if is_flexible else reader.nullable_string()


def _bytes(reader: Reader, version: int, is_flexible: bool) -> Value:
    data = reader.compact_bytes() if is_flexible else reader.nullable_bytes()
    return None if data is None else base64.b64encode(data).decode()


def _uuid(reader: Reader, version: int, is_flexible: bool) -> Value:
    return base64.urlsafe_b64encode(reader.uuid()).decode().rstrip("=")


def _int8(reader: Reader, version: int, is_flexible: bool) -> Value:
    return reader.int8()


def _int16(reader: Reader, version: int, is_flexible: bool) -> Value:
    return reader.int16()


def _int32(reader: Reader, version: int, is_flexible: bool) -> Value:
    return reader.int32()


def _int64(reader: Reader, version: int, is_flexible: bool) -> Value:
    return reader.int64()


_NAMED_PARTITIONS = _array(_struct(_Field("topic", _string), _Field("partitions", _array(_int32))))
_SUBSCRIPTION = _struct(
    _Field("topics", _array(_string)),
    _Field("userData", _bytes),
    _Field("ownedPartitions", _NAMED_PARTITIONS, since=1),
    _Field("generationId", _int32, since=2),
    _Field("rackId", _string, since=3),
)
_ASSIGNMENT = _struct(_Field("assignedPartitions", _NAMED_PARTITIONS), _Field("userData", _bytes))


def _embedded(schema: _Read) -> _Read:
    """Return a reader of bytes that hold a message of the consumers' protocol; other bytes are shown as they are."""

    def read(reader: Reader, version: int, is_flexible: bool) -> Value:
        data = reader.compact_bytes() if is_flexible else reader.bytes_()
        inner = Reader(data)
        try:
            return schema(inner, inner.int16(), False)
        except ValueError:
            return base64.b64encode(data).decode()

    return read


def _group_members(subscription: _Read, assignment: _Read) -> _Read:
    return _array(
        _struct(
            _Field("memberId", _string),
            _Field("groupInstanceId", _string, since=3),
            _Field("clientId", _string),
            _Field("clientHost", _string),
            _Field("rebalanceTimeout", _int32, since=1),
            _Field("sessionTimeout", _int32),
            _Field("subscription", subscription),
            _Field("assignment", assignment),
        )
    )


def _group_metadata(reader: Reader, version: int, is_flexible: bool) -> Value:
    """Read a classic group. Only groups of consumers have members whose subscriptions are known messages."""
    protocol_type = _string(reader, version, is_flexible)
    members = _CONSUMERS if protocol_type == "consumer" else _OTHER_MEMBERS
    rest = _struct(
        _Field("generation", _int32),
        _Field("protocol", _string),
        _Field("leader", _string),
        _Field("currentStateTimestamp", _int64, since=2),
        _Field("members", members),
    )(reader, version, is_flexible)
    assert isinstance(rest, dict)
    return {"protocolType": protocol_type, **rest}


_CONSUMERS = _group_members(_embedded(_SUBSCRIPTION), _embedded(_ASSIGNMENT))
_OTHER_MEMBERS = _group_members(_bytes, _bytes)
_OFFSET = _struct(
    _Field("offset", _int64),
    _Field("leaderEpoch", _int32, since=3),
    _Field("metadata", _string),
    _Field("commitTimestamp", _int64),
    _Field("expireTimestamp", _int64, since=1, until=1),
    _Field("topicId", _uuid, tag=0),
)
_TOPIC_PARTITIONS = _array(
    _struct(
        _Field("topicId", _uuid),
        _Field("partitions", _array(_int32)),
        _Field("assignmentEpochs", _array(_int32), tag=0),
    )
)
_TOPIC_METADATA = _struct(
    _Field("topicId", _uuid),
    _Field("topicName", _string),
    _Field("numPartitions", _int32),
    _Field("partitionMetadata", _array(_struct(_Field("partition", _int32), _Field("racks", _array(_string))))),
)
_CLASSIC_MEMBER = _struct(
    _Field("sessionTimeoutMs", _int32),
    _Field("supportedProtocols", _array(_struct(_Field("name", _string), _Field("metadata", _bytes)))),
)
_MEMBER = _struct(
    _Field("instanceId", _string),
    _Field("rackId", _string),
    _Field("clientId", _string),
    _Field("clientHost", _string),
    _Field("subscribedTopicNames", _array(_string)),
    _Field("subscribedTopicRegex", _string),
    _Field("rebalanceTimeoutMs", _int32),
    _Field("serverAssignor", _string),
    _Field("classicMemberMetadata", _nullable(_CLASSIC_MEMBER), tag=0),
)
_CURRENT_ASSIGNMENT = _struct(
    _Field("memberEpoch", _int32),
    _Field("previousMemberEpoch", _int32),
    _Field("state", _int8),
    _Field("assignedPartitions", _TOPIC_PARTITIONS),
    _Field("partitionsPendingRevocation", _TOPIC_PARTITIONS),
)
_TRANSACTION = _struct(
    _Field("producerId", _int64),
    _Field("previousProducerId", _int64, tag=0),
    _Field("nextProducerId", _int64, tag=1),
    _Field("producerEpoch", _int16),
    _Field("nextProducerEpoch", _int16, tag=3),
    _Field("transactionTimeoutMs", _int32),
    _Field("transactionStatus", _int8),
    _Field("transactionPartitions", _array(_struct(_Field("topic", _string), _Field("partitionIds", _array(_int32))))),
    _Field("transactionLastUpdateTimestampMs", _int64),
    _Field("transactionStartTimestampMs", _int64),
    _Field("clientTransactionVersion", _int16, tag=2),
    _Field("lastProducerEpoch", _int16, tag=10_000),
)
_GROUP_ID, _MEMBER_ID = _Field("groupId", _string), _Field("memberId", _string)
_OFFSET_KEY = _struct(_Field("group", _string), _Field("topic", _string), _Field("partition", _int32))
_TYPES: Mapping[RecordDecoder, Mapping[int, _Type]] = {
    RecordDecoder.TRANSACTIONS: {0: _Type(_struct(_Field("transactionalId", _string)), _TRANSACTION, 1, flexible=1)},
    RecordDecoder.OFFSETS: {
        0: _Type(_OFFSET_KEY, _OFFSET, 0, _NEVER),
        1: _Type(_OFFSET_KEY, _OFFSET, 4, flexible=4),
        2: _Type(_struct(_Field("group", _string)), _group_metadata, 4, flexible=4),
        3: _Type(
            _struct(_GROUP_ID),
            _struct(
                _Field("epoch", _int32),
                _Field("metadataHash", _int64, tag=0),
                _Field("creationTimeMs", _int64, tag=1),
            ),
        ),
        4: _Type(_struct(_GROUP_ID), _struct(_Field("topics", _array(_TOPIC_METADATA)))),
        5: _Type(_struct(_GROUP_ID, _MEMBER_ID), _MEMBER),
        6: _Type(
            _struct(_GROUP_ID),
            _struct(_Field("assignmentEpoch", _int32), _Field("assignmentTimestamp", _int64, tag=0)),
        ),
        7: _Type(_struct(_GROUP_ID, _MEMBER_ID), _struct(_Field("topicPartitions", _TOPIC_PARTITIONS))),
        8: _Type(_struct(_GROUP_ID, _MEMBER_ID), _CURRENT_ASSIGNMENT),
        16: _Type(
            _struct(_GROUP_ID, _Field("regularExpression", _string)),
            _struct(_Field("topics", _array(_string)), _Field("version", _int64), _Field("timestamp", _int64)),
        ),
    },
}
"""The types of a topic's records, by the number with which a key begins."""
