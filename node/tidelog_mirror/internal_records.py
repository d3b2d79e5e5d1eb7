"""The formats of the records of internal topics, byte for byte those of MirrorMaker 2 and of Connect's workers.

Kafka's classes OffsetSync, Checkpoint and Heartbeat define the first three: primitive types of Kafka's protocol, and a
version before the values of checkpoints and heartbeats. Positions are JSON, as Connect's workers store offsets of
MirrorSourceConnector, so that either can continue where the other has stopped.
"""

from __future__ import annotations

import json
import struct
from struct import Struct
from typing import Final

from tidelog_foundation.dataclass import dataclass

_VERSION: Final = 0
_CONNECTOR: Final = "MirrorSourceConnector"
_FENCE: Final = "tidelog-mirror"
_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_OFFSETS: Final = Struct(">qq")


class MalformedRecordError(ValueError):
    """A record of an internal topic that has another format."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record of a source partition at ``upstream_offset`` and its copy at ``downstream_offset``."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        return _text(self.topic) + _INT32.pack(self.partition), _OFFSETS.pack(
            self.upstream_offset, self.downstream_offset
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A group's committed offset on the source, and its translation for the remote topic."""

    group_id: str
    topic: str
    """The topic's name on the target."""
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str

    def encode(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        key = _text(self.group_id) + _text(self.topic) + _INT32.pack(self.partition)
        offsets = _OFFSETS.pack(self.upstream_offset, self.downstream_offset)
        return key, _INT16.pack(_VERSION) + offsets + _text(self.metadata)


def encode_heartbeat(source: str, target: str, timestamp_ms: int) -> tuple[bytes, bytes]:
    """Return key and value of a heartbeat."""
    return _text(source) + _text(target), _INT16.pack(_VERSION) + _INT64.pack(timestamp_ms)


def encode_position(source: str, topic: str, partition: int, last_offset: int) -> tuple[bytes, bytes]:
    """Return key and value of a position: the offset of the last copied record."""
    return position_key(source, topic, partition), json.dumps({"offset": last_offset}, separators=(",", ":")).encode()


def position_key(source: str, topic: str, partition: int) -> bytes:
    """Return the key of a partition's position."""
    where = {"cluster": source, "partition": partition, "topic": topic}
    return json.dumps([_CONNECTOR, where], separators=(",", ":"), ensure_ascii=False).encode()


def encode_fence(source: str) -> tuple[bytes, bytes]:
    """Return key and value of a record of another connector, which shows up to where positions must be read.

    Its transaction is aborted. Connect's workers without exactly once read it all the same, and find nothing in it.
    """
    return json.dumps([_FENCE, {"cluster": source}], separators=(",", ":"), ensure_ascii=False).encode(), b"{}"


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """Return an offset sync.

    Raises:
        MalformedRecordError: The record is no offset sync.
    """
    try:
        topic, at = _read_text(key or b"", 0)
        (partition,) = _INT32.unpack_from(key or b"", at)
        return OffsetSync(topic, partition, *_OFFSETS.unpack_from(value or b""))
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecordError(f"an offset sync of another format: {error}") from error


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """Return a checkpoint.

    Raises:
        MalformedRecordError: The record is no checkpoint of version 0.
    """
    try:
        group, at = _read_text(key or b"", 0)
        topic, at = _read_text(key or b"", at)
        (partition,) = _INT32.unpack_from(key or b"", at)
        (version,) = _INT16.unpack_from(value or b"")
        if version != _VERSION:
            raise MalformedRecordError(f"a checkpoint of version {version}, {_VERSION} is supported")
        upstream, downstream = _OFFSETS.unpack_from(value or b"", _INT16.size)
        metadata, _ = _read_text(value or b"", _INT16.size + _OFFSETS.size)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecordError(f"a checkpoint of another format: {error}") from error
    return Checkpoint(group, topic, partition, upstream, downstream, metadata)


def decode_position(source: str, key: bytes | None, value: bytes | None) -> tuple[str, int, int | None] | None:
    """Return topic, partition and last copied offset, which is None after a deletion; None for records of others."""
    try:
        connector, where = json.loads(key or b"")
        if connector != _CONNECTOR or where["cluster"] != source:
            return None
        found = None if value is None else json.loads(value)
        offset = None if found is None else int(found["offset"])
        return str(where["topic"]), int(where["partition"]), offset
    except (ValueError, TypeError, KeyError):
        return None


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _INT16.pack(len(encoded)) + encoded


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _INT16.unpack_from(data, at)
    at += _INT16.size
    if length < 0 or at + length > len(data):
        raise MalformedRecordError(f"a text of {length} bytes at byte {at} of {len(data)}")
    return data[at : at + length].decode(), at + length
