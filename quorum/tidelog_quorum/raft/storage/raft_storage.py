"""A replica's log, term, vote and snapshot on disk; everything acknowledged survives a crash.

One call of :meth:`RaftStorage.write` is one synced, atomic write of RocksDB, however many writes it is given. So a
start reads the state between two calls, and the last index beside the hard state always gives the number of entries.
Snapshots are files beside the database (see ``snapshot_files``): a received one is complete, synced and renamed before
the write that names it, and the previous one is removed after that write.

Blocking; all calls after :func:`open_storage` come from one thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core.commands import CompactLog, InstallSnapshot, Persist, StoreChunk
from tidelog_quorum.raft.core.messages import Entry, HardState, Snapshot
from tidelog_quorum.raft.storage.log_format import (
    FORMAT_VERSION,
    IDENTITY_KEY,
    SNAPSHOT_KEY,
    STATE_KEY,
    Identity,
    LogState,
    decode_entry,
    encode_entry,
    encode_identity,
    encode_snapshot,
    encode_state,
    entry_key,
    seal,
    unseal,
)
from tidelog_quorum.raft.storage.private_folder import make_private_folder
from tidelog_quorum.raft.storage.snapshot_files import (
    SnapshotReceiver,
    check_snapshot,
    remove_snapshot,
    remove_snapshots,
    storage_error,
    sync_directory,
)
from tidelog_quorum.raft.storage.stored_log import StoredState, open_database, read_identity, read_state
from tidelog_quorum.raft.storage.wal import check_wal

Write = Persist | CompactLog | StoreChunk | InstallSnapshot


@dataclass(frozen=True, slots=True)
class Written:
    """The result of :meth:`RaftStorage.write`: all sequences up to ``sequence`` are done (None: there was none).

    The snapshots in ``damaged`` had wrong checksums and are removed.
    """

    sequence: int | None
    damaged: tuple[Snapshot, ...] = ()


class RaftStorage:
    """An open log. After an error of :meth:`write`, nothing more may be written or acknowledged."""

    def __init__(self, database: Rdict, directory: Path, stored: StoredState) -> None:
        self._database = database
        self._directory = directory
        self._hard_state = stored.hard_state
        self._last_index = stored.last_index
        self._log_start = stored.log_start
        self._snapshot = stored.snapshot
        self._receiver = SnapshotReceiver(directory)

    def write(self, writes: Sequence[Write]) -> Written:
        """Execute these writes in order, as one atomic write, and return when they would survive a crash.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk is full or failed; an unknown part survives.
        """
        batch = WriteBatch(raw_mode=True)
        sequence, damaged, replaced = None, [], []
        for write in writes:
            if isinstance(write, StoreChunk):
                self._receiver.store(write.snapshot, write.position, write.chunk)
                continue
            sequence = write.sequence
            if isinstance(write, InstallSnapshot) and not self._receiver.complete(write.snapshot):
                damaged.append(write.snapshot)
                continue
            before = self._snapshot
            self._add(batch, write)
            if before is not None and before != self._snapshot:
                replaced.append(before)
        if sequence is not None:
            self._commit(batch)
        for snapshot in replaced:
            remove_snapshot(self._directory, snapshot.last_index, snapshot.last_term)
        return Written(sequence, tuple(damaged))

    def close(self) -> None:
        """Release the folder; everything acknowledged is on disk already."""
        try:
            self._receiver.close()
        finally:
            try:
                self._database.close()
            except Exception as error:
                raise _failed(f"cannot close the metadata log in {self._directory}: {error}") from error

    def _add(self, batch: WriteBatch, write: Persist | CompactLog | InstallSnapshot) -> None:
        match write:
            case Persist():
                if write.hard_state is not None:
                    self._hard_state = write.hard_state
                self._append(batch, write.truncate_from, write.entries)
            case CompactLog(_, snapshot, first_index):
                if self._snapshot is not None and snapshot.last_index <= self._snapshot.last_index:
                    # A newer one was installed while this one was being written.
                    remove_snapshot(self._directory, snapshot.last_index, snapshot.last_term)
                    return
                self._set_snapshot(batch, snapshot)
                self._drop_before(batch, first_index, self._term_at(first_index - 1))
            case InstallSnapshot(_, snapshot):
                self._set_snapshot(batch, snapshot)
                self._truncate(batch, self._log_start[0] + 1)
                self._last_index = snapshot.last_index
                self._drop_before(batch, snapshot.last_index + 1, snapshot.last_term)

    def _append(self, batch: WriteBatch, truncate_from: int | None, entries: Sequence[Entry]) -> None:
        if truncate_from is not None:
            self._truncate(batch, truncate_from)
        for entry in entries:
            assert entry.index == self._last_index + 1, (entry.index, self._last_index)
            key = entry_key(entry.index)
            batch.put(key, seal(key, encode_entry(entry)))
            self._last_index = entry.index

    def _truncate(self, batch: WriteBatch, index: int) -> None:
        assert index > self._log_start[0], (index, self._log_start)
        if index <= self._last_index:
            batch.delete_range(entry_key(index), entry_key(self._last_index + 1))
            self._last_index = index - 1

    def _drop_before(self, batch: WriteBatch, first_index: int, term_before: int) -> None:
        start = self._log_start[0]
        assert start < first_index, (start, first_index)
        if start + 1 < first_index:
            batch.delete_range(entry_key(start + 1), entry_key(first_index))
        self._log_start = first_index - 1, term_before
        self._last_index = max(self._last_index, first_index - 1)

    def _set_snapshot(self, batch: WriteBatch, snapshot: Snapshot) -> None:
        assert self._snapshot is None or self._snapshot.last_index < snapshot.last_index, (self._snapshot, snapshot)
        self._snapshot = snapshot
        batch.put(SNAPSHOT_KEY, seal(SNAPSHOT_KEY, encode_snapshot(snapshot)))

    def _term_at(self, index: int) -> int:
        """Return the term of an entry that an earlier call has written, or of the one before the first."""
        if index == self._log_start[0]:
            return self._log_start[1]
        assert self._snapshot is not None
        if index == self._snapshot.last_index:
            return self._snapshot.last_term
        key = entry_key(index)
        value = self._database.get(key)
        assert value is not None, index
        try:
            return decode_entry(index, unseal(key, value)).term
        except ValueError as error:
            text = f"the entry at index {index} of the metadata log in {self._directory} is damaged: {error}"
            raise error_for(ErrorCode.CORRUPT_MESSAGE, text) from error

    def _commit(self, batch: WriteBatch) -> None:
        state = LogState(self._hard_state, self._last_index, self._log_start)
        batch.put(STATE_KEY, seal(STATE_KEY, encode_state(state)))
        write_synced(self._database, self._directory, batch)


def open_storage(
    directory: Path, cluster_id: str, node_id: int, new_directory_id: Callable[[], bytes] = lambda: uuid.uuid4().bytes
) -> tuple[RaftStorage, StoredState]:
    """Open the metadata log in ``directory``, created if missing, and return it with its content.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID or INCONSISTENT_VOTER_SET, the folder belongs to another cluster or voter;
            UNSUPPORTED_VERSION, it has another format; CORRUPT_MESSAGE, an entry or the snapshot is missing or damaged
            (the text names its index or path); KAFKA_STORAGE_ERROR, the folder is in use or cannot be read or written.
    """
    _make_directory(directory)
    check_wal(directory)
    database = open_database(directory)
    try:
        stored = _read_or_found(database, directory, Identity(FORMAT_VERSION, node_id, new_directory_id(), cluster_id))
        if stored.snapshot is not None:
            check_snapshot(directory, stored.snapshot)
        remove_snapshots(directory, stored.snapshot)
    except BaseException:
        database.close()
        raise
    return RaftStorage(database, directory, stored), stored


def _read_or_found(database: Rdict, directory: Path, mine: Identity) -> StoredState:
    identity = read_identity(database, directory)
    if identity is None:
        stored = StoredState(HardState(), directory_id=mine.directory_id)
    else:
        _check_identity(identity, directory, mine)
        stored = read_state(database, directory, identity)
        if identity.format == FORMAT_VERSION:
            return stored
        stored = StoredState(stored.hard_state, stored.entries, directory_id=mine.directory_id)
    # Identity and state in one write, because the identity has the format of the state.
    batch = WriteBatch(raw_mode=True)
    batch.put(IDENTITY_KEY, seal(IDENTITY_KEY, encode_identity(mine)))
    state = LogState(stored.hard_state, stored.last_index)
    batch.put(STATE_KEY, seal(STATE_KEY, encode_state(state)))
    write_synced(database, directory, batch)
    return stored


def _check_identity(stored: Identity, directory: Path, mine: Identity) -> None:
    if stored.cluster_id != mine.cluster_id:
        raise error_for(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'the metadata log in {directory} is of cluster "{stored.cluster_id}", cluster.id is "{mine.cluster_id}"',
        )
    if stored.node_id != mine.node_id:
        raise error_for(
            ErrorCode.INCONSISTENT_VOTER_SET,
            f"the metadata log in {directory} is controller {stored.node_id}'s, node.id is {mine.node_id}",
        )


def write_synced(database: Rdict, directory: Path, batch: WriteBatch) -> None:
    """Write a batch and return when it would survive a crash.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR.
    """
    unsynced = WriteOptions()
    try:
        # Not a write with sync=True: rocksdict holds Python's lock during that, so a slow disk would stop heartbeats.
        # This write only reaches the operating system, and the sync releases the lock.
        database.write(batch, unsynced)
        database.flush_wal(True)
    except Exception as error:
        # rocksdict raises bare Exception for whatever RocksDB reports.
        raise _failed(f"cannot write to the metadata log in {directory}: {error}") from error


def _make_directory(directory: Path) -> None:
    try:
        make_private_folder(directory)
    except OSError as error:
        raise storage_error("make the metadata log folder", directory, error) from error
    # The folder itself must survive a crash, or a voter forgets its votes with it.
    sync_directory(directory.parent)


def _failed(text: str) -> TidelogError:
    return error_for(ErrorCode.KAFKA_STORAGE_ERROR, text)
