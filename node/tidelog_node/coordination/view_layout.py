"""The keys and values of a coordinator's view in RocksDB.

A shard is named by its partition of the internal topic and the topic id, so that a topic that is created again begins
empty. In a record's key that name is followed by the owner of the record, such as the group, prefixed by its length,
and the rest of the record's key. All records of an owner are therefore adjacent, in the order of their keys. A shard
also has an entry for its position, and one for each record of a stored transaction.
"""

from __future__ import annotations

import struct

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import TopicId
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecord

FORMAT_VERSION = 2
FORMAT_KEY = b"\x00format"
_POSITION_KIND, _RECORD_KIND, _PENDING_KIND = b"\x01", b"\x02", b"\x03"
_SHARD = struct.Struct(">i16s")
_POSITION = struct.Struct(">qiq")
_TYPE_AND_LENGTH = struct.Struct(">hh")
_LENGTH = struct.Struct(">H")
_PRODUCER = struct.Struct(">q")
_PENDING = struct.Struct(">q?")
_TYPE_SIZE = 2


@dataclass(frozen=True, slots=True)
class ViewPosition:
    """The applied part of the log: all records below ``offset``, the last of which was written in ``leader_epoch``.

    ``written_ms`` is the wall-clock time of this state.
    """

    offset: int
    leader_epoch: int
    written_ms: int


@dataclass(frozen=True, slots=True, order=True)
class ShardName:
    """A partition of an internal topic and the id of that topic."""

    partition: int
    topic_id: TopicId

    def encode(self) -> bytes:
        """Return the bytes that follow the kind in all keys of the shard."""
        return _SHARD.pack(self.partition, self.topic_id)


def position_key(name: ShardName) -> bytes:
    """Return the key of a shard's position."""
    return _POSITION_KIND + name.encode()


def all_positions() -> tuple[bytes, bytes]:
    """Return the key range of all shards' positions."""
    return _POSITION_KIND, _RECORD_KIND


def shard_of_position(key: bytes) -> ShardName:
    """Return the shard of a position's key."""
    partition, topic_id = _SHARD.unpack(key[len(_POSITION_KIND) :])
    return ShardName(partition, TopicId(topic_id))


def encode_position(position: ViewPosition) -> bytes:
    """Return a position's bytes."""
    return _POSITION.pack(position.offset, position.leader_epoch, position.written_ms)


def decode_position(data: bytes) -> ViewPosition:
    """Decode a position.

    Raises:
        struct.error: The bytes have another length.
    """
    return ViewPosition(*_POSITION.unpack(data))


def all_records(name: ShardName) -> tuple[bytes, bytes]:
    """Return the key range of a shard's records."""
    return _RECORD_KIND + name.encode(), after(_RECORD_KIND + name.encode())


def all_pending(name: ShardName) -> tuple[bytes, bytes]:
    """Return the key range of the records of a shard's stored transactions."""
    return _PENDING_KIND + name.encode(), after(_PENDING_KIND + name.encode())


def pending_key(name: ShardName, producer_id: int, record_key: bytes) -> bytes:
    """Return the view's key for a record of a stored transaction."""
    return _PENDING_KIND + name.encode() + _PRODUCER.pack(producer_id) + record_key


def encode_pending(pending: PendingRecord) -> bytes:
    """Return the value of a record of a stored transaction: its offset, and the record's value."""
    value = pending.record.value
    return _PENDING.pack(pending.offset, value is not None) + (value or b"")


def decode_pending(key: bytes, data: bytes) -> PendingRecord:
    """Decode a record of a stored transaction.

    Raises:
        struct.error: The key or the value is too short.
    """
    start = len(_PENDING_KIND) + _SHARD.size
    (producer_id,) = _PRODUCER.unpack_from(key, start)
    offset, has_value = _PENDING.unpack_from(data)
    value = data[_PENDING.size :] if has_value else None
    return PendingRecord(producer_id, offset, ShardRecord(key[start + _PRODUCER.size :], value))


def records_of_owner(name: ShardName, owner: bytes) -> tuple[bytes, bytes]:
    """Return the key range of an owner's records."""
    prefix = _owner_prefix(name, owner)
    return prefix, after(prefix)


def entry_key(name: ShardName, record_key: bytes) -> bytes | None:
    """Return the view's key for a record, or None for a key without an owner."""
    if len(record_key) < _TYPE_AND_LENGTH.size:
        return None
    _, length = _TYPE_AND_LENGTH.unpack_from(record_key)
    end = _TYPE_AND_LENGTH.size + length
    if not 0 <= length <= len(record_key) - _TYPE_AND_LENGTH.size:
        return None
    owner = record_key[_TYPE_AND_LENGTH.size : end]
    return _owner_prefix(name, owner) + record_key[:_TYPE_SIZE] + record_key[end:]


def split_entry_key(name: ShardName, key: bytes) -> tuple[bytes, bytes]:
    """Return an entry's owner and the key of its record."""
    start = len(_RECORD_KIND) + _SHARD.size
    (length,) = _LENGTH.unpack_from(key, start)
    owner_start = start + _LENGTH.size
    owner = key[owner_start : owner_start + length]
    rest = key[owner_start + length :]
    return owner, rest[:_TYPE_SIZE] + _LENGTH.pack(length) + owner + rest[_TYPE_SIZE:]


def after(prefix: bytes) -> bytes:
    """Return the least key above all keys that begin with ``prefix``, which must not consist of 0xff alone."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def _owner_prefix(name: ShardName, owner: bytes) -> bytes:
    return _RECORD_KIND + name.encode() + _LENGTH.pack(len(owner)) + owner
