"""A controller's folder that becomes the beginning of a new quorum: one voter, a new identity, nothing of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog_foundation.errors import TidelogError
from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState
from tidelog_quorum.raft.storage.new_quorum import begin_quorum
from tidelog_quorum.raft.storage.raft_storage import open_storage
from tidelog_quorum.raft.storage.snapshot_files import read_snapshot

ENDPOINTS = Endpoints.at("localhost", 9093, "GRPC")


def begin(directory: Path) -> None:
    begin_quorum(directory, "c", 2, ENDPOINTS, 10**12, 1_000_000, [b"im", b"age"])


@pytest.mark.parametrize("has_log", [False, True])
def test_new_quorum_has_one_voter_with_a_log_of_its_own(tmp_path: Path, has_log: bool) -> None:
    directory, former_id = tmp_path / "metadata", b""
    if has_log:
        storage, stored = open_storage(directory, "c", 2)
        former_id = stored.directory_id
        entries = tuple(Entry(i, 5, EntryKind.DATA, b"x") for i in range(1, 40))
        storage.write([Persist(1, HardState(6, 3), None, entries)])
        with pytest.raises(TidelogError, match="in use by another process"):
            begin(directory)
        storage.close()
    begin(directory)
    storage, stored = open_storage(directory, "c", 2)
    storage.close()
    assert stored.hard_state == HardState(1_000_000, None)
    assert (stored.entries, stored.last_index, stored.log_start) == ((), 10**12, (10**12, 1_000_000))
    assert stored.snapshot is not None
    assert (stored.snapshot.last_index, stored.snapshot.last_term) == (10**12, 1_000_000)
    [voter] = stored.snapshot.voters
    assert (voter.voter_id, voter.endpoints) == (2, ENDPOINTS)
    assert voter.directory_id == stored.directory_id != former_id
    assert b"".join(read_snapshot(directory, stored.snapshot)) == b"image"
    assert [path.name for path in directory.glob("*.checkpoint*")] == ["01000000000000-0001000000.checkpoint".zfill(42)]


def test_new_quorum_twice_replaces_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        begin(tmp_path / "metadata")
    _, stored = open_storage(tmp_path / "metadata", "c", 2)
    assert stored.snapshot is not None
