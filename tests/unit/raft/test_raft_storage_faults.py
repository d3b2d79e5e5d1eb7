"""A write is one atomic write on disk: what crashes, torn tails and disks that fail in the middle leave of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from small_disk import SmallDisk, why_not

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.commands import Persist
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState
from tidelog_quorum.raft.storage.raft_storage import RaftStorage, open_storage
from tidelog_quorum.raft.storage.stored_log import StoredState

_MEMTABLE_BYTES = 4 * 1024 * 1024


def opened(directory: Path) -> tuple[RaftStorage, StoredState]:
    return open_storage(directory, "c", 1, lambda: bytes(16))


def persist(index: int, size: int) -> Persist:
    """Return a write of two entries and a term that tells which write it was."""
    entries = tuple(Entry(i, index, EntryKind.DATA, bytes(size)) for i in (2 * index - 1, 2 * index))
    return Persist(index, HardState(index, 7), None, entries)


def read_copy(directory: Path, copy: Path, cut: int = 0) -> StoredState:
    """Read what a crash now would leave, with so many bytes missing at the end of the newest write-ahead log."""
    copy_still(directory, copy)
    newest = max(copy.glob("*.log"))
    os.truncate(newest, max(0, newest.stat().st_size - cut))
    storage, state = opened(copy)
    storage.close()
    shutil.rmtree(copy)
    return state


def copy_still(directory: Path, copy: Path) -> None:
    """Copy the folder as it is at one moment, while RocksDB works on it in the background."""

    def sizes() -> list[tuple[str, int]]:
        return sorted((path.name, path.stat().st_size) for path in directory.iterdir())

    while True:
        with contextlib.suppress(FileNotFoundError, shutil.Error):
            before = sizes()
            shutil.copytree(directory, copy)
            if sizes() == before:
                return
        shutil.rmtree(copy, ignore_errors=True)


def check_whole(state: StoredState, acknowledged: int) -> None:
    """Check that the state is that after ``acknowledged`` writes."""
    assert state.last_index == 2 * acknowledged
    assert state.hard_state == (HardState(acknowledged, 7) if acknowledged else HardState())


def test_write_is_on_disk_whole_when_a_memtable_becomes_a_file_in_between(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path / "log")
    size = _MEMTABLE_BYTES // 14
    for number in range(1, 17):
        storage.write([persist(number, size)])
        check_whole(read_copy(tmp_path / "log", tmp_path / "copy"), number)
    assert list((tmp_path / "log").glob("*.sst"))
    storage.close()


@pytest.mark.parametrize("cut", [1, 7, 100, 600, 40_000, 80_000])
def test_write_with_a_torn_tail_is_lost_whole_and_alone(tmp_path: Path, cut: int) -> None:
    storage, _ = opened(tmp_path / "log")
    for number in range(1, 4):
        storage.write([persist(number, 50_000)])
    check_whole(read_copy(tmp_path / "log", tmp_path / "copy", cut), 2)
    storage.close()


def test_what_a_start_has_read_does_not_depend_on_the_write_ahead_log_any_more(tmp_path: Path) -> None:
    # A process that was killed between write and sync may have left what is in the page cache alone: the next one
    # counts it as its log, and so must have it on disk.
    storage, _ = opened(tmp_path / "log")
    for number in range(1, 4):
        storage.write([persist(number, 1_000)])
    shutil.copytree(tmp_path / "log", tmp_path / "restarted")
    again, state = opened(tmp_path / "restarted")
    check_whole(state, 3)
    check_whole(read_copy(tmp_path / "restarted", tmp_path / "copy", cut=1 << 30), 3)
    again.close()
    storage.close()


def test_write_whose_sync_fails_is_an_error(tmp_path: Path) -> None:
    class FailingSync:
        """The database of a disk that takes writes and fails to sync them."""

        def __init__(self, database: object) -> None:
            self._database = database

        def __getattr__(self, name: str) -> object:
            return getattr(self._database, name)

        def flush_wal(self, sync: bool) -> None:
            assert sync
            raise Exception("IO error: While fdatasync: Input/output error")

    storage, _ = opened(tmp_path)
    storage.write([persist(1, 10)])
    storage._database = FailingSync(storage._database)  # type: ignore[assignment]
    with pytest.raises(TidelogError, match="Input/output error") as caught:
        storage.write([persist(2, 10)])
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    storage.close()


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("leave", [0, 200_000, 6_000_000], ids=["at once", "in the log", "at a memtable's flush"])
def test_disk_that_fills_up_is_an_error_and_takes_nothing_acknowledged(tmp_path: Path, leave: int) -> None:
    with SmallDisk(tmp_path, 64) as disk:
        storage, _ = opened(disk.path / "log")
        disk.fill(leave)
        acknowledged = 0
        error: TidelogError | None = None
        while error is None and acknowledged < 1_000:
            try:
                storage.write([persist(acknowledged + 1, 10_000)])
                acknowledged += 1
            except TidelogError as raised:
                error = raised
        assert error is not None
        assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(TidelogError):
            storage.close()
        del storage
        disk.make_room()
        again, state = opened(disk.path / "log")
        check_whole(state, acknowledged)
        again.close()
