from __future__ import annotations

import dataclasses
import errno
import random
from pathlib import Path

import pytest

from tidelog_foundation.errors import ErrorCode, RefreshMetadataError
from tidelog_foundation.records import iter_headers
from tidelog_node.log import PartitionLog

DIRECTORY = Path("/data/topic-0")
FIRST_SEGMENT = DIRECTORY / "00000000000000000000.log"


@pytest.fixture
def log(disk, config, batch_of):
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
    return log


def _failing(operations, number, suffix=""):
    return lambda operation, path: number if operation in operations and path.name.endswith(suffix) else None


@pytest.mark.parametrize("room", [0, 1, 60, 61, 80])
def test_append_leaves_the_log_as_it_was_when_the_disk_is_full(log, disk, config, batch_of, room):
    size = log.size_in_bytes
    disk.capacity = room
    with pytest.raises(RefreshMetadataError, match=r"\.log failed: \[Errno 28\] No space left") as caught:
        log.append_as_leader(batch_of(b"c" * 100), 0, now_ms=0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.size_in_bytes, log.failure) == (2, size, None)
    assert len(disk.read_bytes(FIRST_SEGMENT)) == size
    disk.capacity = None
    assert log.append_as_leader(batch_of(b"d"), 0, now_ms=0).first_offset == 2
    log.check_invariants()


@pytest.mark.parametrize("preallocate", [False, True])
def test_rest_of_a_refused_append_does_not_come_back_by_a_crash_when_the_segment_has_ended(
    disk, config, batch_of, preallocate
):
    config = dataclasses.replace(config, preallocate=preallocate)
    for seed in range(20):
        directory = DIRECTORY.parent / f"t-{seed}"
        log = PartitionLog.open(directory, config, files=disk)
        log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
        flushed = log.flush()
        disk.capacity = 30
        if not preallocate:
            with pytest.raises(RefreshMetadataError, match="No space left"):
                log.append_as_leader(batch_of(b"c" * 100), 0, now_ms=0)
        disk.capacity = None
        log.roll(now_ms=0)
        log.append_as_leader(batch_of(b"d"), 0, now_ms=0)
        log.flush()
        disk.crash(random.Random(seed))
        log = PartitionLog.open(directory, config, files=disk, recovery_point=flushed)
        data = log.read(0, 1000, 2)
        assert [h.base_offset for _, h in iter_headers(data)] == [0]
        assert len(data) == log.sealed_segments()[0].size
        log.check_invariants()


def test_append_goes_on_after_a_short_write(log, disk, batch_of, monkeypatch):
    whole = disk.pwrite
    monkeypatch.setattr(disk, "pwrite", lambda handle, data, position: whole(handle, data[:7], position))
    log.append_as_leader(batch_of(b"c", b"d"), 0, now_ms=0)
    log.check_invariants()


def test_append_takes_the_log_offline_when_its_rest_cannot_be_cut(log, disk, config, batch_of):
    disk.capacity = 30
    disk.fail = _failing({"truncate"}, errno.EIO)
    with pytest.raises(RefreshMetadataError, match="No space left"):
        log.append_as_leader(batch_of(b"c"), 0, now_ms=0)
    disk.capacity, disk.fail = None, _failing((), 0)
    with pytest.raises(RefreshMetadataError, match=r"offline: .*Errno 5"):
        log.append_as_leader(batch_of(b"d"), 0, now_ms=0)
    with pytest.raises(RefreshMetadataError, match="offline"):
        log.read(0, 100, 2)
    with pytest.raises(RefreshMetadataError, match="offline"):
        log.close()
    again = PartitionLog.open(DIRECTORY, config, files=disk)
    assert (again.log_end_offset, again.recovery.truncated_bytes) == (2, 30)


@pytest.mark.parametrize("end", ["close", "delete", "rename_for_deletion"])
def test_end_of_a_log_names_the_disk_error_of_a_close(log, disk, batch_of, end):
    while log.segment_count < 3:
        log.append_as_leader(batch_of(b"x" * 100), 0, now_ms=0)
    disk.fail = _failing({"close"}, errno.EIO)
    with pytest.raises(RefreshMetadataError, match=r"Errno 5") as caught:
        getattr(log, end)()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_roll_that_fails_leaves_the_log_as_it_was(log, disk, batch_of):
    disk.fail = lambda operation, path: (
        errno.ENOSPC if operation == "open" and path.suffix == ".log" and path != FIRST_SEGMENT else None
    )
    while log.size_in_bytes < 450:
        log.append_as_leader(batch_of(b"x" * 100), 0, now_ms=0)
    with pytest.raises(RefreshMetadataError, match="Rolling a segment"):
        log.append_as_leader(batch_of(b"x" * 200), 0, now_ms=0)
    disk.fail = _failing((), 0)
    end = log.log_end_offset
    assert log.append_as_leader(batch_of(b"c"), 0, now_ms=0).first_offset == end
    log.check_invariants()


def test_new_epoch_that_cannot_be_stored_holds_the_recovery_point_back(log, disk, batch_of):
    """A full disk must not take the log offline: the file says what it said, and so does the recovery point."""
    log.flush()
    log.append_as_leader(batch_of(b"c"), 1, now_ms=0)
    disk.fail = _failing({"rename"}, errno.ENOSPC)
    with pytest.raises(RefreshMetadataError, match=r"leader-epoch-checkpoint failed: \[Errno 28\]"):
        log.flush()
    assert (log.recovery_point, log.log_end_offset, log.latest_epoch, log.failure) == (2, 3, 1, None)
    assert not [path for path in disk.paths() if path.suffix == ".tmp"]
    disk.fail = _failing((), 0)
    assert log.flush() == log.recovery_point == 3


def test_flush_that_fails_takes_the_log_offline(log, disk, batch_of):
    disk.fail = _failing({"fsync"}, errno.EIO)
    with pytest.raises(RefreshMetadataError, match="Flushing /data/topic-0 failed"):
        log.flush()
    disk.fail = _failing((), 0)
    with pytest.raises(RefreshMetadataError, match="offline: Flushing"):
        log.append_as_leader(batch_of(b"c"), 0, now_ms=0)
    assert log.recovery_point == 0


def test_truncation_that_fails_takes_the_log_offline(log, disk):
    disk.fail = _failing({"truncate"}, errno.EIO)
    with pytest.raises(RefreshMetadataError, match="Truncating"):
        log.truncate_to(0)
    with pytest.raises(RefreshMetadataError, match="offline"):
        log.read(0, 100, 2)


def test_read_that_fails_says_so_and_may_be_repeated(log, disk):
    disk.fail = _failing({"pread"}, errno.EIO)
    with pytest.raises(RefreshMetadataError, match=r"Reading .*\.log failed: \[Errno 5\]"):
        log.read(0, 100, 2)
    disk.fail = _failing((), 0)
    assert log.read(0, 100, 2)


def test_open_that_cannot_read_cuts_nothing(log, disk, config):
    before = disk.read_bytes(FIRST_SEGMENT)
    disk.kill()
    disk.fail = _failing({"pread"}, errno.EIO, ".log")
    with pytest.raises(RefreshMetadataError, match="Opening the log"):
        PartitionLog.open(DIRECTORY, config, files=disk)
    assert disk.read_bytes(FIRST_SEGMENT) == before
    assert disk.handle_count == 0


def test_close_of_a_log_that_went_offline_is_not_clean(log, disk):
    disk.fail = _failing({"fsync"}, errno.EIO)
    with pytest.raises(RefreshMetadataError, match="Flushing"):
        log.flush()
    disk.fail = _failing((), 0)
    with pytest.raises(RefreshMetadataError, match="offline: Flushing"):
        log.close()
    assert disk.handle_count == 0
    log.close()
