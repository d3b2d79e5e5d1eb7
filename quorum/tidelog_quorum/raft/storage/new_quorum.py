"""Writes the beginning of a new quorum to a replica's folder: its state, and this replica as the lone voter.

The content of an earlier log in the folder is replaced, with one atomic write after the snapshot's file is complete: a
crash leaves the former log or the new quorum. Blocking.

A lone voter elects itself: a majority of one. This is safe only if no other replica of the former quorum ever votes
again, which no software can check. The new ``directory_id`` tells the two apart: replicas of the former quorum, which
know this one under its former id, neither vote for it nor accept its entries, and the reverse.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from rocksdict import Rdict, WriteBatch

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import HardState, Snapshot
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.storage.log_format import (
    ENTRY_PREFIX,
    FORMAT_VERSION,
    IDENTITY_KEY,
    SNAPSHOT_KEY,
    STATE_KEY,
    Identity,
    LogState,
    encode_identity,
    encode_snapshot,
    encode_state,
    seal,
)
from tidelog_quorum.raft.storage.private_folder import make_private_folder
from tidelog_quorum.raft.storage.raft_storage import write_synced
from tidelog_quorum.raft.storage.snapshot_files import remove_snapshots, storage_error, sync_directory, write_snapshot
from tidelog_quorum.raft.storage.stored_log import open_database
from tidelog_quorum.raft.storage.wal import check_wal

_END_OF_ENTRIES = bytes([ENTRY_PREFIX[0] + 1])


def begin_quorum(
    directory: Path,
    cluster_id: str,
    node_id: int,
    endpoints: Endpoints,
    offset: int,
    epoch: int,
    chunks: Iterable[bytes],
) -> None:
    """Make a stopped replica the lone voter of a new quorum, whose state at ``offset`` is in ``chunks``.

    ``epoch`` must be above all terms of the former quorum, and ``offset`` above the offsets of its entries.

    Raises:
        TidelogError: KAFKA_STORAGE_ERROR, the folder is in use, or cannot be written; CORRUPT_MESSAGE, its log is
            damaged.
    """
    try:
        make_private_folder(directory)
    except OSError as error:
        raise storage_error("make the metadata log folder", directory, error) from error
    sync_directory(directory.parent)
    check_wal(directory)
    # The lock of the database keeps a controller out meanwhile.
    database = open_database(directory)
    try:
        written = write_snapshot(directory, offset, epoch, chunks, lambda: False)
        assert written is not None, "nothing stops the write of the snapshot"
        directory_id = uuid.uuid4().bytes
        snapshot = Snapshot(offset, epoch, VoterSet([Voter(node_id, endpoints, directory_id)]), *written)
        _replace(database, directory, Identity(FORMAT_VERSION, node_id, directory_id, cluster_id), snapshot)
        remove_snapshots(directory, snapshot)
    finally:
        _close(database, directory)


def _replace(database: Rdict, directory: Path, identity: Identity, snapshot: Snapshot) -> None:
    batch = WriteBatch(raw_mode=True)
    batch.delete_range(ENTRY_PREFIX, _END_OF_ENTRIES)
    state = LogState(HardState(snapshot.last_term), snapshot.last_index, (snapshot.last_index, snapshot.last_term))
    batch.put(IDENTITY_KEY, seal(IDENTITY_KEY, encode_identity(identity)))
    batch.put(SNAPSHOT_KEY, seal(SNAPSHOT_KEY, encode_snapshot(snapshot)))
    batch.put(STATE_KEY, seal(STATE_KEY, encode_state(state)))
    write_synced(database, directory, batch)


def _close(database: Rdict, directory: Path) -> None:
    try:
        database.close()
    except Exception as error:
        # rocksdict raises bare Exception for whatever RocksDB reports.
        text = f"cannot close the metadata log in {directory}: {error}"
        raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
