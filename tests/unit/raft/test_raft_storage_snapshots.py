"""The log shortened by snapshots: one atomic write each, and what a crash or damage at any point leaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import crc32c
import pytest

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_quorum.raft.core.commands import CompactLog, InstallSnapshot, Persist, StoreChunk
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState, Snapshot
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.storage import raft_storage as storage_module
from tidelog_quorum.raft.storage.raft_storage import RaftStorage, Write, Written, open_storage
from tidelog_quorum.raft.storage.snapshot_files import snapshot_path, write_snapshot
from tidelog_quorum.raft.storage.stored_log import StoredState

VOTERS = VoterSet([Voter.at(1, "localhost", 9093, bytes(range(16))), Voter.at(2, "localhost", 9094)])
DIRECTORY_ID = bytes(16)


def content(last_index: int) -> bytes:
    return b"state %d;" % last_index * 30


def snapshot_at(last_index: int, term: int = 1) -> Snapshot:
    data = content(last_index)
    return Snapshot(last_index, term, VOTERS, len(data), crc32c.crc32c(data))


def entries(start: int, end: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(i, term, EntryKind.DATA, b"%d" % i) for i in range(start, end))


def append(sequence: int, start: int, end: int, term: int = 1) -> Persist:
    return Persist(sequence, HardState(term), None, entries(start, end, term))


def chunks_of(last_index: int, term: int = 1) -> list[StoreChunk]:
    data, snapshot = content(last_index), snapshot_at(last_index, term)
    return [StoreChunk(snapshot, p, data[p : p + 100]) for p in range(0, len(data), 100)]


def take(directory: Path, last_index: int) -> Snapshot:
    """Write the file of an own snapshot."""
    assert write_snapshot(directory, last_index, 1, [content(last_index)], lambda: False)
    return snapshot_at(last_index)


def opened(directory: Path) -> tuple[RaftStorage, StoredState]:
    return open_storage(directory, "c", 1, lambda: DIRECTORY_ID)


def reopen(directory: Path) -> StoredState:
    storage, state = opened(directory)
    storage.close()
    return state


def snapshot_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.checkpoint*"))


def test_compaction_keeps_the_entries_behind_it_and_those_that_trail(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 11)])
    assert storage.write([CompactLog(2, take(tmp_path, 8), 6)]) == Written(2)
    storage.write([append(3, 11, 13)])
    storage.close()
    assert reopen(tmp_path) == StoredState(HardState(1), entries(6, 13), snapshot_at(8), (5, 1), DIRECTORY_ID)


def test_compaction_in_one_write_with_the_entries_before_and_behind(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 5), append(2, 5, 9)])
    storage.write([append(3, 9, 11, term=2), CompactLog(4, take(tmp_path, 8), 9), append(5, 11, 12, term=2)])
    storage.close()
    expected = entries(9, 12, term=2)
    assert reopen(tmp_path) == StoredState(HardState(2), expected, snapshot_at(8), (8, 1), DIRECTORY_ID)


def test_compactions_follow_each_other_and_leave_one_file(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 31)])
    storage.write([CompactLog(2, take(tmp_path, 10), 5)])
    storage.write([CompactLog(3, take(tmp_path, 20), 15)])
    assert snapshot_files(tmp_path) == [snapshot_path(tmp_path, 20, 1).name]
    storage.close()
    assert reopen(tmp_path) == StoredState(HardState(1), entries(15, 31), snapshot_at(20), (14, 1), DIRECTORY_ID)


def test_compaction_by_an_older_snapshot_than_the_present_one_changes_nothing(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 31), *chunks_of(40), InstallSnapshot(2, snapshot_at(40))])
    storage.write([CompactLog(3, take(tmp_path, 20), 15)])
    assert snapshot_files(tmp_path) == [snapshot_path(tmp_path, 40, 1).name]
    storage.close()
    assert reopen(tmp_path) == StoredState(HardState(1), (), snapshot_at(40), (40, 1), DIRECTORY_ID)


def test_snapshot_that_is_replaced_in_the_write_that_names_it_leaves_no_file(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 31)])
    storage.write([CompactLog(2, take(tmp_path, 10), 11)])
    storage.write([CompactLog(3, take(tmp_path, 20), 21), *chunks_of(40), InstallSnapshot(4, snapshot_at(40))])
    assert snapshot_files(tmp_path) == [snapshot_path(tmp_path, 40, 1).name]
    storage.close()
    assert reopen(tmp_path) == StoredState(HardState(1), (), snapshot_at(40), (40, 1), DIRECTORY_ID)


def test_installed_snapshot_replaces_the_log(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 11)])
    install = InstallSnapshot(2, snapshot_at(8, 3))
    assert storage.write([*chunks_of(8, 3), install, append(3, 9, 12, term=4)]) == Written(3)
    storage.close()
    expected = entries(9, 12, term=4)
    assert reopen(tmp_path) == StoredState(HardState(4), expected, snapshot_at(8, 3), (8, 3), DIRECTORY_ID)


def test_damaged_snapshot_is_told_and_what_stands_beside_it_is_written(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    damaged = [StoreChunk(c.snapshot, c.position, c.chunk[:-1] + b"?") for c in chunks_of(8)]
    install = InstallSnapshot(2, snapshot_at(8))
    assert storage.write([append(1, 1, 4), *damaged, install, append(3, 4, 6, term=3)]) == Written(3, (snapshot_at(8),))
    assert snapshot_files(tmp_path) == []
    assert storage.write([*chunks_of(8), InstallSnapshot(4, snapshot_at(8))]) == Written(4)
    storage.close()
    assert reopen(tmp_path) == StoredState(HardState(3), (), snapshot_at(8), (8, 1), DIRECTORY_ID)


def test_chunks_alone_are_no_write_that_counts(tmp_path: Path) -> None:
    storage, _ = opened(tmp_path)
    assert storage.write(chunks_of(8)) == Written(None)
    storage.close()
    assert reopen(tmp_path) == StoredState(HardState(), directory_id=DIRECTORY_ID)
    assert snapshot_files(tmp_path) == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"?" + path.read_bytes()[1:])])
def test_start_is_refused_when_the_named_snapshot_is_missing_or_damaged(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    storage, _ = opened(tmp_path)
    storage.write([append(1, 1, 11)])
    storage.write([CompactLog(2, take(tmp_path, 8), 9)])
    storage.close()
    damage(snapshot_path(tmp_path, 8, 1))
    with pytest.raises(TidelogError, match=str(snapshot_path(tmp_path, 8, 1))) as refused:
        opened(tmp_path)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


class PowerFailureError(BaseException):
    """The simulated end of the process: nothing in it catches this."""


@dataclass
class CuttingDisk:
    """Patches the file operations; stops at the given one, after which :meth:`lose` takes away what was not synced."""

    stop_at: int
    stop: Callable[[], None]
    count: int = 0
    unsynced: set[str] = field(default_factory=set)
    names: list[Callable[[], object]] = field(default_factory=list)

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pwrite, fsync, rename, unlink = os.pwrite, os.fsync, os.rename, os.unlink
        write_synced = storage_module.write_synced

        def cut_pwrite(descriptor: int, data: bytes, position: int) -> int:
            self.point()
            self.unsynced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
            return pwrite(descriptor, data, position)

        def cut_fsync(descriptor: int) -> None:
            self.point()
            fsync(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self.unsynced.discard(path)
            if os.path.isdir(path):
                self.names.clear()

        def cut_rename(source: str, target: str) -> None:
            self.point()
            assert str(source) not in self.unsynced, "a file must be on disk before it gets its name"
            rename(source, target)
            self.names.append(lambda: rename(target, source))

        def cut_unlink(path: str) -> None:
            self.point()
            data = Path(path).read_bytes()
            unlink(path)
            self.unsynced.discard(str(path))
            self.names.append(lambda: Path(path).write_bytes(data))

        def cut_write_synced(*arguments: object) -> None:
            self.point()
            write_synced(*arguments)  # type: ignore[arg-type]
            self.point()

        monkeypatch.setattr(os, "pwrite", cut_pwrite)
        monkeypatch.setattr(os, "fsync", cut_fsync)
        monkeypatch.setattr(os, "rename", cut_rename)
        monkeypatch.setattr(os, "unlink", cut_unlink)
        monkeypatch.setattr(storage_module, "write_synced", cut_write_synced)

    def point(self) -> None:
        self.count += 1
        if self.count == self.stop_at:
            self.stop()

    def lose(self) -> None:
        for path in self.unsynced:
            if os.path.exists(path):
                os.truncate(path, os.path.getsize(path) // 2)
        for undo in reversed(self.names):
            undo()


def steps(directory: Path) -> Iterator[tuple[Callable[[], list[Write]], StoredState]]:
    """Yield what is written, one call each, and what a start must find from when the call has returned."""
    yield (
        lambda: [append(1, 1, 11)],
        StoredState(HardState(1), entries(1, 11), directory_id=DIRECTORY_ID),
    )
    yield (
        lambda: [CompactLog(2, take(directory, 8), 6)],
        StoredState(HardState(1), entries(6, 11), snapshot_at(8), (5, 1), DIRECTORY_ID),
    )
    yield (
        lambda: [*chunks_of(20), InstallSnapshot(3, snapshot_at(20)), append(4, 21, 24, term=2)],
        StoredState(HardState(2), entries(21, 24, term=2), snapshot_at(20), (20, 1), DIRECTORY_ID),
    )
    yield (
        lambda: [CompactLog(5, take_in_term_2(directory, 22), 23)],
        StoredState(HardState(2), entries(23, 24, term=2), snapshot_at(22, 2), (22, 2), DIRECTORY_ID),
    )


def take_in_term_2(directory: Path, last_index: int) -> Snapshot:
    assert write_snapshot(directory, last_index, 2, [content(last_index)], lambda: False)
    return snapshot_at(last_index, 2)


def run_until_cut(directory: Path, storage: RaftStorage, disk: CuttingDisk) -> tuple[list[StoredState], bool]:
    """Return the states that a start may find now, the last one acknowledged and the one in the making, and the end."""
    allowed = [StoredState(HardState(), directory_id=DIRECTORY_ID)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        disk.patch(monkeypatch)
        try:
            for writes, after in steps(directory):
                allowed = [allowed[-1], after]
                storage.write(writes())
                allowed = [after]
            finished = True
        except PowerFailureError:
            finished = False
    return allowed, finished


@pytest.mark.parametrize("loses", [False, True], ids=["written", "unsynced lost"])
def test_storage_is_as_before_or_as_after_when_cut_at_any_point(tmp_path: Path, loses: bool) -> None:
    def fail() -> None:
        raise PowerFailureError

    for stop_at in range(1, 100):
        directory = tmp_path / str(stop_at)
        disk = CuttingDisk(stop_at, fail)
        storage, _ = opened(directory)
        allowed, finished = run_until_cut(directory, storage, disk)
        storage._database.close()
        if loses:
            disk.lose()
        state = reopen(directory)
        assert state in allowed, stop_at
        kept = (
            []
            if state.snapshot is None
            else [snapshot_path(directory, state.snapshot.last_index, state.snapshot.last_term)]
        )
        assert snapshot_files(directory) == [path.name for path in kept], stop_at
        if finished:
            assert disk.count == stop_at - 1
            return
    pytest.fail("the steps have more points than were tried")


@pytest.mark.parametrize("stop_at", [2, 5, 6, 7, 12, 14, 15, 18, 22, 24])
def test_storage_is_as_before_or_as_after_when_killed_at_a_point(tmp_path: Path, stop_at: int) -> None:
    child = os.fork()
    if child == 0:
        try:
            storage, _ = opened(tmp_path)
            run_until_cut(tmp_path, storage, CuttingDisk(stop_at, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    empty = StoredState(HardState(), directory_id=DIRECTORY_ID)
    assert reopen(tmp_path) in [empty, *(after for _, after in steps(tmp_path))]
