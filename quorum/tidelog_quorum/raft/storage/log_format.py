"""The keys and values of a replica's metadata log in RocksDB, format 2 (and 1, to read it).

===========  ==========================================================================================
key          value, after the CRC-32C of key and value; all numbers big-endian
===========  ==========================================================================================
``m``        u32 format, i32 node id, 16 bytes directory id, cluster id in UTF-8
``h``        i32 term, bool has voted, i32 voted for, u64 last index, u64 and i32 index and term before the first entry
``s``        of the latest snapshot: u64 last index, i32 last term, u64 size, u32 CRC-32C, a ``VotersRecord``
``e`` + u64  the entry at that index: i32 term, u8 kind, payload or a ``VotersRecord``
===========  ==========================================================================================

Format 1 had neither ``s`` nor the directory id, and its log began at index 1.
"""

from __future__ import annotations

import struct

import crc32c

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState, Snapshot
from tidelog_quorum.raft.voters_record import decode_voters, encode_voters

FORMAT_VERSION = 2
DIRECTORY_ID_SIZE = 16
IDENTITY_KEY = b"m"
STATE_KEY = b"h"
SNAPSHOT_KEY = b"s"
ENTRY_PREFIX = b"e"
_CRC = struct.Struct(">I")
_INDEX = struct.Struct(">Q")
_IDENTITY = struct.Struct(">Ii")
_STATE_1 = struct.Struct(">i?iQ")
_STATE = struct.Struct(">i?iQQi")
_SNAPSHOT = struct.Struct(">QiQI")
_ENTRY = struct.Struct(">iB")


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a folder; ``directory_id`` is empty in format 1."""

    format: int
    node_id: int
    directory_id: bytes
    cluster_id: str


@dataclass(frozen=True, slots=True)
class LogState:
    """The hard state and the range of entries: those after ``log_start`` = (index, term) up to ``last_index``."""

    hard_state: HardState
    last_index: int = 0
    log_start: tuple[int, int] = (0, 0)


def entry_key(index: int) -> bytes:
    """Return the key of the entry at ``index``."""
    return ENTRY_PREFIX + _INDEX.pack(index)


def seal(key: bytes, body: bytes) -> bytes:
    """Return the value to store: the checksum and the body."""
    return _CRC.pack(_checksum(key, body)) + body


def unseal(key: bytes, value: bytes) -> bytes:
    """Return the body of a stored value.

    Raises:
        ValueError: the checksum does not match key and body.
    """
    body = value[_CRC.size :]
    stored = _CRC.unpack_from(value)[0] if len(value) >= _CRC.size else None
    computed = _checksum(key, body)
    if stored != computed:
        raise ValueError(f"CRC-32C {computed:#010x}, stored {'none' if stored is None else f'{stored:#010x}'}")
    return body


def encode_identity(identity: Identity) -> bytes:
    """Return the body of an identity in the current format."""
    assert len(identity.directory_id) == DIRECTORY_ID_SIZE, identity
    return _IDENTITY.pack(FORMAT_VERSION, identity.node_id) + identity.directory_id + identity.cluster_id.encode()


def decode_identity(body: bytes) -> Identity:
    """Return the identity of any format; of an unknown format only the format number is meaningful."""
    version, node_id = _IDENTITY.unpack_from(body)
    end = _IDENTITY.size + (DIRECTORY_ID_SIZE if version == FORMAT_VERSION else 0)
    return Identity(version, node_id, body[_IDENTITY.size : end], body[end:].decode(errors="replace"))


def encode_state(state: LogState) -> bytes:
    """Return the body of a log's state."""
    hard = state.hard_state
    voted_for = 0 if hard.voted_for is None else hard.voted_for
    return _STATE.pack(hard.term, hard.voted_for is not None, voted_for, state.last_index, *state.log_start)


def decode_state(body: bytes, version: int) -> LogState:
    """Return the state of a log of the given format."""
    if version == 1:
        term, has_voted, voted_for, last_index = _STATE_1.unpack(body)
        return LogState(HardState(term, voted_for if has_voted else None), last_index)
    term, has_voted, voted_for, last_index, start_index, start_term = _STATE.unpack(body)
    return LogState(HardState(term, voted_for if has_voted else None), last_index, (start_index, start_term))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the body of the latest snapshot's entry."""
    numbers = _SNAPSHOT.pack(snapshot.last_index, snapshot.last_term, snapshot.size, snapshot.checksum)
    return numbers + encode_voters(snapshot.voters)


def decode_snapshot(body: bytes) -> Snapshot:
    """Return the snapshot that a body describes.

    Raises:
        TidelogError: CORRUPT_MESSAGE, the voters are invalid.
    """
    last_index, last_term, size, checksum = _SNAPSHOT.unpack_from(body)
    return Snapshot(last_index, last_term, decode_voters(body[_SNAPSHOT.size :]), size, checksum)


def encode_entry(entry: Entry) -> bytes:
    """Return the body of an entry; the key has its index."""
    content = entry.payload if entry.voters is None else encode_voters(entry.voters)
    return _ENTRY.pack(entry.term, entry.kind) + content


def decode_entry(index: int, body: bytes) -> Entry:
    """Return the entry at ``index``.

    Raises:
        ValueError: this version does not know the kind.
        TidelogError: CORRUPT_MESSAGE, the voters are invalid.
    """
    term, kind = _ENTRY.unpack_from(body)
    content = body[_ENTRY.size :]
    if kind == EntryKind.VOTERS:
        return Entry(index, term, EntryKind.VOTERS, voters=decode_voters(content))
    return Entry(index, term, EntryKind(kind), content)


def _checksum(key: bytes, body: bytes) -> int:
    return crc32c.crc32c(body, crc32c.crc32c(key))
