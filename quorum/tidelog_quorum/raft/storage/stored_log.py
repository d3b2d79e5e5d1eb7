"""Reads a replica's metadata log from its RocksDB and checks that it is complete.

It writes nothing; the storage uses it at the start, and a tool may read the folder of a stopped controller.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path

from rocksdict import AccessType, DBCompressionType, DBRecoveryMode, Options, Rdict, RdictIter

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core.messages import Entry, HardState, Snapshot
from tidelog_quorum.raft.storage import log_format
from tidelog_quorum.raft.storage.wal import check_wal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredState:
    """The content of the disk when it was opened.

    ``entries`` are all entries after ``log_start`` = (index, term), without a gap. A snapshot covers at least
    ``log_start``.
    """

    hard_state: HardState
    entries: tuple[Entry, ...] = ()
    snapshot: Snapshot | None = None
    log_start: tuple[int, int] = (0, 0)
    directory_id: bytes = b""

    @property
    def last_index(self) -> int:
        """The index of the last entry, or the one before the first."""
        return self.entries[-1].index if self.entries else self.log_start[0]


def read_stored_log(directory: Path) -> tuple[log_format.Identity, StoredState]:
    """Return the content of a folder that no process has open; the folder is unchanged.

    Raises:
        TidelogError: see :func:`tidelog_quorum.raft.storage.raft_storage.open_storage`; KAFKA_STORAGE_ERROR also if
            the folder has no metadata log.
    """
    check_wal(directory)
    database = open_database(directory, AccessType.read_only())
    try:
        identity = read_identity(database, directory)
        if identity is None:
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"there is no metadata log in {directory}")
        return identity, read_state(database, directory, identity)
    finally:
        database.close()


def open_database(directory: Path, access: AccessType | None = None) -> Rdict:
    """Open the folder's RocksDB; create it if it is missing and the access permits it.

    Raises:
        TidelogError: CORRUPT_MESSAGE, it is damaged; KAFKA_STORAGE_ERROR, it is in use or the disk failed.
    """
    try:
        return Rdict(str(directory), _options(), access_type=access or AccessType.read_write())
    except Exception as error:
        # rocksdict raises bare Exception for every error of RocksDB.
        raise _open_error(directory, error) from error


def read_identity(database: Rdict, directory: Path) -> log_format.Identity | None:
    """Return the log's owner; None in a new folder.

    Raises:
        TidelogError: UNSUPPORTED_VERSION, the format is unknown; CORRUPT_MESSAGE; KAFKA_STORAGE_ERROR.
    """
    body = _read(database, directory, log_format.IDENTITY_KEY, "the identity")
    if body is None:
        return None
    identity = log_format.decode_identity(body)
    if not 1 <= identity.format <= log_format.FORMAT_VERSION:
        raise error_for(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the metadata log in {directory} is of format {identity.format}, "
            f"this version reads 1 to {log_format.FORMAT_VERSION}",
        )
    return identity


def read_state(database: Rdict, directory: Path, identity: log_format.Identity) -> StoredState:
    """Return the whole content of the log.

    Raises:
        TidelogError: CORRUPT_MESSAGE, an entry is missing or damaged (the text names its index); KAFKA_STORAGE_ERROR.
    """
    body = _read(database, directory, log_format.STATE_KEY, "the term and vote")
    state = log_format.LogState(HardState()) if body is None else log_format.decode_state(body, identity.format)
    body = _read(database, directory, log_format.SNAPSHOT_KEY, "the snapshot's name")
    snapshot = None if body is None else log_format.decode_snapshot(body)
    if state.log_start[0] > (0 if snapshot is None else snapshot.last_index):
        raise _corrupt(directory, state.log_start[0], "is gone, but no snapshot stands for it")
    entries = tuple(_read_entries(database, directory, state))
    return StoredState(state.hard_state, entries, snapshot, state.log_start, identity.directory_id)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_paranoid_checks(True)
    # Drops a torn last write, which was never acknowledged; check_wal has verified that it is no more than that.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_write_buffer_size(4 * 1024 * 1024)
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(2)
    options.set_compression_type(DBCompressionType.none())
    options.set_manifest_preallocation_size(64 * 1024)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _read_entries(database: Rdict, directory: Path, state: log_format.LogState) -> Iterator[Entry]:
    start, term = state.log_start
    iterator = database.iter()
    # Not from the prefix on: the iterator would have to step over all compacted keys.
    iterator.seek(log_format.entry_key(start + 1))
    for index in range(start + 1, state.last_index + 1):
        key = log_format.entry_key(index)
        if not iterator.valid() or iterator.key() != key:
            raise _corrupt(directory, index, _why_missing(iterator, state))
        body = _checked(directory, key, iterator.value(), f"the entry at index {index}")
        try:
            entry = log_format.decode_entry(index, body)
        except (ValueError, struct.error, TidelogError) as error:
            raise _corrupt(directory, index, f"is unknown to this version: {error}") from error
        if entry.term < term:
            raise _corrupt(directory, index, f"has term {entry.term}, which is below {term}, the term before")
        term = entry.term
        yield entry
        iterator.next()
    if iterator.valid() and iterator.key().startswith(log_format.ENTRY_PREFIX):
        raise _corrupt(directory, state.last_index, "should be the last one, but others follow")


def _why_missing(iterator: RdictIter, state: log_format.LogState) -> str:
    """Return why an entry is missing: the iterator's status tells an unreadable block from the end of the keys."""
    try:
        iterator.status()
    except Exception as error:
        # rocksdict raises bare Exception for every error of RocksDB.
        logger.error("RocksDB cannot read a block: %s", error, exc_info=True)
        return f"cannot be read: {error}"
    return f"is missing, entries {state.log_start[0] + 1} to {state.last_index} should be there"


def _read(database: Rdict, directory: Path, key: bytes, what: str) -> bytes | None:
    try:
        value = database.get(key)
    except Exception as error:
        raise _open_error(directory, error) from error
    return None if value is None else _checked(directory, key, value, what)


def _checked(directory: Path, key: bytes, value: bytes, what: str) -> bytes:
    try:
        return log_format.unseal(key, value)
    except ValueError as error:
        text = f"{what} of the metadata log in {directory} is damaged: {error}"
        raise error_for(ErrorCode.CORRUPT_MESSAGE, text) from error


def _corrupt(directory: Path, index: int, why: str) -> TidelogError:
    return error_for(ErrorCode.CORRUPT_MESSAGE, f"the entry at index {index} of the metadata log in {directory} {why}")


def _open_error(directory: Path, error: Exception) -> TidelogError:
    text = str(error)
    if "lock" in text and "LOCK" in text:
        return error_for(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log in {directory} is in use by another process: {text}"
        )
    if text.startswith("Corruption"):
        return error_for(ErrorCode.CORRUPT_MESSAGE, f"the metadata log in {directory} is damaged: {text}")
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot open the metadata log in {directory}: {text}")
