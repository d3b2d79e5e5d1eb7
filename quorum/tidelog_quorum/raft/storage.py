"""A voter's log, term and vote on disk, in RocksDB; upholds that what was acknowledged survives a crash.

Keys: ``m`` identity, ``h`` hard state and last index, ``e`` and 8 big-endian bytes an entry. Every value begins
with the CRC-32C of its key and the rest. One call of :meth:`RaftStorage.write` is one synced, atomic write, so the
last index beside the hard state always tells how many entries there must be.

Blocking; all calls after :func:`open_storage` come from one thread.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import crc32c
from rocksdict import DBCompressionType, DBRecoveryMode, Options, Rdict, RdictIter, WriteBatch, WriteOptions

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core import Entry, EntryKind, HardState, Persist
from tidelog_quorum.raft.wal import check_wal

logger = logging.getLogger(__name__)
FORMAT_VERSION = 1
_IDENTITY_KEY = b"m"
_STATE_KEY = b"h"
_ENTRY_PREFIX = b"e"
_CRC = struct.Struct(">I")
_INDEX = struct.Struct(">Q")
_IDENTITY = struct.Struct(">Ii")
_STATE = struct.Struct(">i?iQ")
_ENTRY = struct.Struct(">iB")


@dataclass(frozen=True, slots=True)
class StoredState:
    """What the disk held when it was opened: all entries from index 1 on."""

    hard_state: HardState
    entries: tuple[Entry, ...]


class RaftStorage:
    """An open database. After an error of :meth:`write` nothing more must be written or acknowledged."""

    def __init__(self, database: Rdict, directory: Path, hard_state: HardState, last_index: int) -> None:
        self._database = database
        self._directory = directory
        self._hard_state = hard_state
        self._last_index = last_index
        self._options = WriteOptions()
        self._options.sync = True

    def write(self, writes: Sequence[Persist]) -> None:
        """Do these writes in order, as one atomic write, and return when they would survive a crash.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk is full or failed; how much survives is open.
        """
        batch = WriteBatch(raw_mode=True)
        for write in writes:
            self._add(batch, write)
        state = self._hard_state
        voted_for = 0 if state.voted_for is None else state.voted_for
        _put(batch, _STATE_KEY, _STATE.pack(state.term, state.voted_for is not None, voted_for, self._last_index))
        try:
            self._database.write(batch, self._options)
        except Exception as error:
            # rocksdict raises bare Exception for whatever RocksDB reports.
            raise _storage_error(f"cannot write to the metadata log in {self._directory}: {error}") from error

    def close(self) -> None:
        """Release the folder; everything acknowledged is on disk already."""
        try:
            self._database.close()
        except Exception as error:
            raise _storage_error(f"cannot close the metadata log in {self._directory}: {error}") from error

    def _add(self, batch: WriteBatch, write: Persist) -> None:
        if write.truncate_from is not None:
            for index in range(write.truncate_from, self._last_index + 1):
                batch.delete(_entry_key(index))
            self._last_index = write.truncate_from - 1
        for entry in write.entries:
            assert entry.index == self._last_index + 1, (entry.index, self._last_index)
            _put(batch, _entry_key(entry.index), _ENTRY.pack(entry.term, entry.kind) + entry.payload)
            self._last_index = entry.index
        if write.hard_state is not None:
            self._hard_state = write.hard_state


def open_storage(directory: Path, cluster_id: str, node_id: int) -> tuple[RaftStorage, StoredState]:
    """Open the metadata log in ``directory``, made if missing, and return it with what it holds.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID or INCONSISTENT_VOTER_SET, the folder is another cluster's or voter's;
            UNSUPPORTED_VERSION, it is of another format; CORRUPT_MESSAGE, an entry is missing or damaged (the text
            names its index); KAFKA_STORAGE_ERROR, the folder is in use or cannot be read or written.
    """
    _make_directory(directory)
    check_wal(directory)
    try:
        database = Rdict(str(directory), _options())
    except Exception as error:
        raise _open_error(directory, error) from error
    try:
        _check_identity(database, directory, cluster_id, node_id)
        hard_state, last_index = _read_state(database, directory)
        entries = tuple(_read_entries(database, directory, last_index))
    except BaseException:
        database.close()
        raise
    return RaftStorage(database, directory, hard_state, last_index), StoredState(hard_state, entries)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # Drops a torn last write, which was never acknowledged; check_wal has made sure that it is no more than that.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_write_buffer_size(4 * 1024 * 1024)
    options.set_max_write_buffer_number(2)
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.none())
    options.set_manifest_preallocation_size(64 * 1024)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # The folder itself must survive a crash, or a voter forgets its votes with it.
        parent = os.open(directory.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise _storage_error(f"cannot make the metadata log folder {directory}: {error}") from error


def _check_identity(database: Rdict, directory: Path, cluster_id: str, node_id: int) -> None:
    stored = _read(database, directory, _IDENTITY_KEY, "the identity")
    if stored is None:
        batch = WriteBatch(raw_mode=True)
        _put(batch, _IDENTITY_KEY, _IDENTITY.pack(FORMAT_VERSION, node_id) + cluster_id.encode())
        options = WriteOptions()
        options.sync = True
        try:
            database.write(batch, options)
        except Exception as error:
            raise _storage_error(f"cannot write to the metadata log in {directory}: {error}") from error
        return
    version, stored_node = _IDENTITY.unpack_from(stored)
    stored_cluster = stored[_IDENTITY.size :].decode()
    if version != FORMAT_VERSION:
        raise error_for(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the metadata log in {directory} is of format {version}, this version reads {FORMAT_VERSION}",
        )
    if stored_cluster != cluster_id:
        raise error_for(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'the metadata log in {directory} is of cluster "{stored_cluster}", cluster.id is "{cluster_id}"',
        )
    if stored_node != node_id:
        raise error_for(
            ErrorCode.INCONSISTENT_VOTER_SET,
            f"the metadata log in {directory} is controller {stored_node}'s, node.id is {node_id}",
        )


def _read_state(database: Rdict, directory: Path) -> tuple[HardState, int]:
    stored = _read(database, directory, _STATE_KEY, "the term and vote")
    if stored is None:
        return HardState(), 0
    term, has_voted, voted_for, last_index = _STATE.unpack(stored)
    return HardState(term, voted_for if has_voted else None), last_index


def _read_entries(database: Rdict, directory: Path, last_index: int) -> Iterator[Entry]:
    iterator = database.iter()
    iterator.seek(_ENTRY_PREFIX)
    term = 0
    for index in range(1, last_index + 1):
        key = _entry_key(index)
        if not iterator.valid() or iterator.key() != key:
            raise _corrupt(directory, index, _why_missing(iterator, last_index))
        entry = _decode_entry(index, _checked(directory, key, iterator.value(), f"the entry at index {index}"))
        if entry.term < term:
            raise _corrupt(directory, index, f"has term {entry.term}, which is below {term}, the term before")
        term = entry.term
        yield entry
        iterator.next()


def _why_missing(iterator: RdictIter, last_index: int) -> str:
    """RocksDB ends an iteration at a block it cannot read as it does at the last key; the status tells which."""
    try:
        iterator.status()
    except Exception as error:
        # rocksdict raises bare Exception for whatever RocksDB reports.
        logger.error("RocksDB cannot read a block: %s", error, exc_info=True)
        return f"cannot be read: {error}"
    return f"is missing, {last_index} entries should be there"


def _decode_entry(index: int, body: bytes) -> Entry:
    term, kind = _ENTRY.unpack_from(body)
    return Entry(index, term, EntryKind(kind), body[_ENTRY.size :])


def _read(database: Rdict, directory: Path, key: bytes, what: str) -> bytes | None:
    try:
        value = database.get(key)
    except Exception as error:
        raise _open_error(directory, error) from error
    return None if value is None else _checked(directory, key, value, what)


def _checked(directory: Path, key: bytes, value: bytes, what: str) -> bytes:
    body = value[_CRC.size :]
    stored = _CRC.unpack_from(value)[0] if len(value) >= _CRC.size else None
    computed = _crc(key, body)
    if stored != computed:
        text = f"{what} of the metadata log in {directory} is damaged: CRC-32C {computed:#010x}, stored {stored}"
        raise error_for(ErrorCode.CORRUPT_MESSAGE, text)
    return body


def _put(batch: WriteBatch, key: bytes, body: bytes) -> None:
    batch.put(key, _CRC.pack(_crc(key, body)) + body)


def _crc(key: bytes, body: bytes) -> int:
    return crc32c.crc32c(body, crc32c.crc32c(key))


def _entry_key(index: int) -> bytes:
    return _ENTRY_PREFIX + _INDEX.pack(index)


def _corrupt(directory: Path, index: int, why: str) -> TidelogError:
    return error_for(ErrorCode.CORRUPT_MESSAGE, f"the entry at index {index} of the metadata log in {directory} {why}")


def _open_error(directory: Path, error: Exception) -> TidelogError:
    text = str(error)
    if "lock" in text and "LOCK" in text:
        return _storage_error(f"the metadata log in {directory} is in use by another process: {text}")
    if text.startswith("Corruption"):
        return error_for(ErrorCode.CORRUPT_MESSAGE, f"the metadata log in {directory} is damaged: {text}")
    return _storage_error(f"cannot open the metadata log in {directory}: {text}")


def _storage_error(text: str) -> TidelogError:
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)
