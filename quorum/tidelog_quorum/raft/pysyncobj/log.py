"""The frames of the engine on pysyncobj, the rule that turns them into a log, and the formats of its two files.

Nothing here uses the library. The rule guarantees that all replicas that apply equal frames see an equal log, even if a
frame is duplicated, late or out of order.
"""

from __future__ import annotations

import enum
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import crc32c

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_quorum.raft.protocol import CommittedEntry
from tidelog_quorum.raft.storage.private_folder import make_private_folder

_FRAME = struct.Struct(">BqiQ")
_DUMP = struct.Struct(">8sIQqi")
_RAFT_ENTRY = struct.Struct(">QQI")
_DUMP_MAGIC = b"TLDUMP01"
_CHUNK_BYTES = 256 * 1024
_IDENTITY = "identity"

RaftEntry = tuple[bytes, int, int]
"""An entry of pysyncobj's own log: command, index, term."""


class FrameKind(enum.IntEnum):
    """The kind of a frame."""

    CLAIM = 0
    """A leader begins its term."""
    DATA = 1
    """A proposal; ``number`` is the index that it was given."""
    BARRIER = 2
    """A read; ``number`` identifies it."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One command in pysyncobj's log, from the leader of a term."""

    kind: FrameKind
    term: int
    leader_id: int
    number: int = 0
    payload: bytes = b""

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        return _FRAME.pack(self.kind, self.term, self.leader_id, self.number) + self.payload

    @classmethod
    def decode(cls, data: bytes) -> Frame:
        """Return the frame of these bytes.

        Raises:
            ValueError: the bytes are not a frame.
        """
        if len(data) < _FRAME.size:
            raise ValueError(f"{len(data)} bytes are not a frame")
        kind, term, leader_id, number = _FRAME.unpack_from(data)
        return cls(FrameKind(kind), term, leader_id, number, data[_FRAME.size :])


@dataclass(frozen=True, slots=True)
class LogState:
    """The end of the log made of frames: its last index, and the term and leader in force."""

    last_index: int = 0
    term: int = 0
    leader_id: int = -1

    def apply(self, frame: Frame) -> tuple[LogState, CommittedEntry | None]:
        """Return the state after a frame, and the frame's entry or None: see the engine's module for the rule."""
        index = self.last_index + 1
        if frame.kind is FrameKind.CLAIM and frame.term > self.term:
            return LogState(index, frame.term, frame.leader_id), CommittedEntry(index, frame.term, b"")
        if frame.kind is FrameKind.DATA and self.is_led_by(frame) and frame.number == index:
            return LogState(index, self.term, self.leader_id), CommittedEntry(index, self.term, frame.payload)
        return self, None

    def is_led_by(self, frame: Frame) -> bool:
        """Return whether a frame's sender leads in the term in force."""
        return (frame.term, frame.leader_id) == (self.term, self.leader_id)


def check_identity(directory: Path, cluster_id: str, node_id: int) -> None:
    """Check that the folder belongs to this voter, or claim it at the first start.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID or INCONSISTENT_VOTER_SET, it belongs to another voter;
            KAFKA_STORAGE_ERROR.
    """
    path = directory / _IDENTITY
    try:
        make_private_folder(directory)
        if not path.exists():
            path.write_text(f"{node_id} {cluster_id}", encoding="utf-8")
            return
        stored_node, _, stored_cluster = path.read_text(encoding="utf-8").partition(" ")
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot use {path}: {error.strerror}") from error
    if stored_cluster != cluster_id:
        text = f'the metadata log in {directory} is of cluster "{stored_cluster}", cluster.id is "{cluster_id}"'
        raise error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    if stored_node != str(node_id):
        text = f"the metadata log in {directory} is controller {stored_node}'s, node.id is {node_id}"
        raise error_for(ErrorCode.INCONSISTENT_VOTER_SET, text)


def write_dump(path: Path, state: LogState, entries: Iterable[RaftEntry], chunks: Iterable[bytes]) -> int:
    """Write and sync a snapshot: the log's state, pysyncobj's own last two entries, the listener's chunks.

    Return its size in bytes.

    Raises:
        OSError: the disk failed.
    """
    with path.open("wb") as file:
        file.write(bytes(_DUMP.size))
        checksum = crc32c.crc32c(_pack_state(state))
        for part in _parts(entries, chunks):
            checksum = crc32c.crc32c(part, checksum)
            file.write(part)
        size = file.tell()
        file.seek(0)
        file.write(_DUMP.pack(_DUMP_MAGIC, checksum, state.last_index, state.term, state.leader_id))
        file.flush()
        os.fsync(file.fileno())
    return size


def read_dump(path: Path) -> tuple[LogState, tuple[RaftEntry, RaftEntry], Iterator[bytes]]:
    """Return the content that :func:`write_dump` wrote, checked; chunks may be cut differently and are read on demand.

    Raises:
        TidelogError: CORRUPT_MESSAGE, it is damaged; KAFKA_STORAGE_ERROR.
    """
    try:
        _check_dump(path)
        with path.open("rb") as file:
            _, _, last_index, term, leader_id = _DUMP.unpack(file.read(_DUMP.size))
            entries = []
            for _ in range(2):
                index, entry_term, size = _RAFT_ENTRY.unpack(file.read(_RAFT_ENTRY.size))
                entries.append((file.read(size), index, entry_term))
            position = file.tell()
    except OSError as error:
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read {path}: {error.strerror}") from error
    return LogState(last_index, term, leader_id), (entries[0], entries[1]), _chunks(path, position)


def _check_dump(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(_DUMP.size)
        magic, stored, *state = _DUMP.unpack(header) if len(header) == _DUMP.size else (b"", 0, 0, 0, 0)
        checksum = crc32c.crc32c(_pack_state(LogState(*state)))
        while chunk := file.read(_CHUNK_BYTES):
            checksum = crc32c.crc32c(chunk, checksum)
    if magic != _DUMP_MAGIC or checksum != stored:
        text = f"the snapshot {path} is damaged: CRC-32C {checksum:#010x}, stored {stored:#010x}"
        raise error_for(ErrorCode.CORRUPT_MESSAGE, text)


def _pack_state(state: LogState) -> bytes:
    return _DUMP.pack(_DUMP_MAGIC, 0, state.last_index, state.term, state.leader_id)


def _parts(entries: Iterable[RaftEntry], chunks: Iterable[bytes]) -> Iterator[bytes]:
    for command, index, term in entries:
        yield _RAFT_ENTRY.pack(index, term, len(command)) + command
    yield from chunks


def _chunks(path: Path, position: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(position)
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
