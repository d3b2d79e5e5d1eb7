"""The disk that the other tests trust: a fault that it cannot show is one that they cannot find."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from memory_disk import MachineCrashed, crash_at_every_step, failing

FILE = Path("/data/topic-0/file")


def _write(disk, path, data, *, is_synced=True):
    disk.mkdir(path.parent)
    handle = disk.open(path, create=True)
    disk.pwrite(handle, data, disk.size(handle))
    if is_synced:
        disk.fsync(handle)
    disk.close(handle)


def _outcomes(disk, look, seeds=200):
    """Return all that is left by crashes of copies of a disk."""
    return {look(disk.crashed_copy(random.Random(seed))) for seed in range(seeds)}


def _exists(disk):
    return FILE in disk.paths()


def test_file_is_lost_by_a_crash_unless_it_and_the_directories_above_are_synced(disk):
    _write(disk, FILE, b"abc")
    assert _outcomes(disk, _exists) == {True, False}
    disk.fsync_directory(FILE.parent)
    assert _outcomes(disk, _exists) == {True, False}, "the directory itself is an entry of the one above"
    disk.fsync_directory(FILE.parent.parent)
    assert _outcomes(disk, lambda d: d.read_bytes(FILE)) == {b"abc"}


def _synced(disk, data=b"abc"):
    _write(disk, FILE, data)
    disk.fsync_directory(FILE.parent)
    disk.fsync_directory(FILE.parent.parent)


def test_write_that_is_not_synced_is_lost_torn_holed_or_kept_by_a_crash(disk):
    _synced(disk)
    _write(disk, FILE, b"DEF", is_synced=False)
    outcomes = _outcomes(disk, lambda d: d.read_bytes(FILE))
    assert {b"abc", b"abcD", b"abcDE", b"abcDEF", b"abcD\0\0"} <= outcomes
    assert all(left.startswith(b"abc") for left in outcomes)


def test_writes_are_lost_from_the_last_one_on(disk):
    _synced(disk)
    for data in (b"1", b"2", b"3"):
        _write(disk, FILE, data, is_synced=False)
    outcomes = {left.rstrip(b"\0") for left in _outcomes(disk, lambda d: d.read_bytes(FILE))}
    assert outcomes == {b"abc", b"abc1", b"abc12", b"abc123"}


def test_rename_and_removal_are_undone_by_a_crash_unless_the_directory_is_synced(disk):
    _synced(disk)
    other = FILE.with_name("other")
    disk.rename(FILE, other)
    assert _outcomes(disk, lambda d: tuple(d.paths())) == {(FILE,), (other,)}
    disk.fsync_directory(FILE.parent)
    disk.remove(other)
    assert _outcomes(disk, lambda d: tuple(d.paths())) == {(), (other,)}


def test_rename_of_a_directory_takes_its_files_along_and_is_undone_by_a_crash(disk):
    _synced(disk)
    target = FILE.parent.with_name("topic-1")
    disk.rename(FILE.parent, target)
    assert disk.paths() == [target / FILE.name]
    assert _outcomes(disk, lambda d: tuple(d.paths())) == {(FILE,), (target / FILE.name,)}
    disk.fsync_directory(target.parent)
    assert _outcomes(disk, lambda d: tuple(d.paths())) == {(target / FILE.name,)}


def test_rename_replaces_a_file_in_one_step(disk):
    _synced(disk)
    _write(disk, FILE.with_name("file.tmp"), b"new")
    disk.rename(FILE.with_name("file.tmp"), FILE)
    assert _outcomes(disk, lambda d: d.read_bytes(FILE)) == {b"abc", b"new"}


def test_rename_to_another_directory_is_refused_as_between_file_systems(disk):
    _synced(disk)
    disk.mkdir(Path("/other"))
    with pytest.raises(OSError, match="cross-device"):
        disk.rename(FILE, Path("/other/file"))


def test_fsync_that_fails_loses_what_it_should_have_kept_though_the_next_one_succeeds(disk):
    _synced(disk)
    _write(disk, FILE, b"DEF", is_synced=False)
    handle = disk.open(FILE)
    disk.fail = failing(errno.EIO, "fsync", times=1)
    with pytest.raises(OSError, match="injected EIO"):
        disk.fsync(handle)
    disk.pwrite(handle, b"G", 6)
    disk.fsync(handle)
    assert disk.read_bytes(FILE) == b"abcDEFG"
    assert _outcomes(disk, lambda d: d.read_bytes(FILE)) == {b"abc\0\0\0G"}


def test_full_disk_takes_a_part_of_a_write_then_none_until_something_is_removed(disk):
    _synced(disk, b"x" * 10)
    disk.capacity = 4
    handle = disk.open(FILE.with_name("other"), create=True)
    assert disk.pwrite(handle, b"abcdefg", 0) == 4
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(handle, b"efg", 4)
    assert disk.pwrite(handle, b"ABCD", 0) == 4, "what is there can be written again"
    disk.truncate(handle, 1)
    assert disk.capacity == 3
    disk.remove(FILE)
    assert disk.capacity == 13
    disk.rename(FILE.with_name("other"), FILE)
    _write(disk, FILE.with_name("more"), b"12345")
    disk.rename(FILE.with_name("more"), FILE)
    assert disk.capacity == 8, "the file that was replaced is open and keeps its byte"
    disk.close(handle)
    assert disk.capacity == 9


def test_removed_file_can_be_read_by_who_has_it_open(disk):
    _synced(disk)
    handle, view = disk.open(FILE), disk.map(FILE)
    disk.remove(FILE)
    assert disk.pread(handle, 10, 1) == b"bc"
    assert bytes(view) == b"abc"


def test_mapped_file_shows_what_is_written_and_cannot_be_cut(disk):
    _synced(disk)
    handle, view = disk.open(FILE), disk.map(FILE)
    disk.pwrite(handle, b"X", 1)
    assert bytes(view) == b"aXc"
    assert view.readonly
    with pytest.raises(BufferError):
        disk.truncate(handle, 1)


def test_bits_flip_at_rest_and_in_a_read(disk):
    _synced(disk)
    disk.flip_bit(FILE, 0, 1)
    assert _outcomes(disk, lambda d: d.read_bytes(FILE)) == {b"cbc"}
    disk.on_read = lambda path, position, data: data[::-1]
    assert disk.pread(disk.open(FILE), 3, 0) == b"cbc"[::-1]
    assert disk.read_bytes(FILE) == b"cbc"


def test_crash_flips_one_bit_near_the_end_of_an_unsynced_write_and_no_other(disk):
    _write(disk, FILE, b"synced")
    disk.fsync_directory(FILE.parent)
    disk.fsync_directory(FILE.parent.parent)
    _write(disk, FILE, b"h" * 21 + b"w" * 40, is_synced=False)
    whole = disk.read_bytes(FILE)
    seen = [disk.crashed_copy(random.Random(seed), flips="file").read_bytes(FILE) for seed in range(400)]
    wrong = [data for data in seen if data != whole and len(data) == len(whole) and not data.endswith(b"\0")]
    places = {i for data in wrong for i in range(len(data)) if data[i] != whole[i]}
    assert (min(places), max(places)) == (27, 66)
    assert all(sum((a ^ b).bit_count() for a, b in zip(data, whole, strict=True)) == 1 for data in wrong)
    assert whole in seen
    others = {disk.crashed_copy(random.Random(seed), flips=".log").read_bytes(FILE) for seed in range(100)}
    assert all(whole.startswith(data.rstrip(b"\0")) for data in others)


def test_short_writes_take_what_the_limit_says(disk):
    disk.write_limit = 2
    disk.mkdir(FILE.parent)
    assert disk.pwrite(disk.open(FILE, create=True), b"abc", 0) == 2


def test_planned_crash_stops_every_operation_until_the_disk_is_used_again(disk):
    _synced(disk)
    disk.crash_at = disk.operations + 1
    disk.listdir(FILE.parent)
    for _ in range(2):
        with pytest.raises(MachineCrashed):
            disk.remove(FILE)
    disk.crash(random.Random(0))
    disk.remove(FILE)


def test_every_step_of_a_scenario_is_crashed_and_a_failure_names_it(disk):
    seen = []

    def prepare(disk):
        _synced(disk)
        return "state"

    def act(disk, state):
        disk.rename(FILE, FILE.with_name("other"))
        disk.fsync_directory(FILE.parent)

    def verify(disk, state, is_done):
        assert state == "state"
        seen.append((disk.paths()[0].name, is_done))
        assert seen.count(("other", True)) < 4, "the last one"

    with pytest.raises(AssertionError, match="the last one") as caught:
        crash_at_every_step(prepare, act, verify, seeds=20)
    assert set(seen) == {("file", False), ("other", False), ("other", True)}
    assert caught.value.__notes__[-1].startswith("crash with seed 2 after operation 2 (last: fsync_directory")
