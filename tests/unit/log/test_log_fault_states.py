"""Findings of the model: failures after which a log, its leader epochs and its producers disagreed."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from log_batches import produced_batch, replicated_batch
from log_model import content
from memory_disk import failing, no_fault

from tidelog_foundation.errors import RefreshMetadataError
from tidelog_foundation.records import ControlType, control_batch
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.epochs import EPOCH_CHECKPOINT

DIRECTORY = Path("/data/topic-0")
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=90, max_message_bytes=290)


@pytest.fixture
def log(disk):
    return PartitionLog.open(DIRECTORY, CONFIG, files=disk)


@pytest.mark.parametrize("clean", [True, False])
def test_truncated_epochs_do_not_come_back_with_the_file_that_has_them(log, disk, clean):
    log.append_as_follower(replicated_batch(0, 1, b"a") + replicated_batch(1, 2, b"b"))
    log.flush()
    log.truncate_to(1)
    disk.kill()
    assert b"2 1" in disk.read_bytes(DIRECTORY / EPOCH_CHECKPOINT)
    again = PartitionLog.open(DIRECTORY, CONFIG, files=disk, clean=clean, recovery_point=2)
    assert (again.log_end_offset, again.end_offset_for_epoch(1), again.latest_epoch) == (1, (1, 1), 1)
    again.append_as_follower(replicated_batch(1, 1, b"c", b"d"))
    again.close()
    assert disk.read_bytes(DIRECTORY / EPOCH_CHECKPOINT) == b"0\n1\n1 0\n"


def test_epochs_below_a_recovery_point_that_was_given_out_are_on_the_disk_when_their_segment_is_sealed(log, disk):
    """Recovery from the old point reads none of the segment that was written again after the truncation."""
    log.append_as_follower(replicated_batch(0, 1, b"a" * 60) + replicated_batch(1, 3, b"b" * 60))
    recovery_point = log.flush() + 2
    log.append_as_follower(replicated_batch(2, 3, b"c"))
    log.append_as_follower(replicated_batch(3, 3, b"c"))
    assert log.flush() == recovery_point
    log.truncate_to(1)
    log.append_as_follower(replicated_batch(1, 4, b"d" * 60))
    log.roll(0)
    for offset in range(2, 6):
        log.append_as_follower(replicated_batch(offset, 5, b"e"))
    disk.kill()
    again = PartitionLog.open(DIRECTORY, CONFIG, files=disk, recovery_point=recovery_point)
    assert (again.log_end_offset, again.recovery.checked_segments) == (6, 1)
    assert [(e.epoch, e.start_offset) for e in again.epoch_entries] == [(1, 0), (4, 1), (5, 2)]
    again.check_invariants()


def test_epoch_of_a_batch_that_the_full_disk_refused_does_not_begin_above_the_end(log, disk):
    log.append_as_follower(replicated_batch(0, 1, b"a"))
    disk.capacity = 30
    with pytest.raises(RefreshMetadataError, match="No space left"):
        log.append_as_follower(replicated_batch(5, 2, b"b"))
    assert (log.log_end_offset, log.end_offset_for_epoch(1)) == (1, (1, 1))
    log.check_invariants()


def test_marker_whose_abort_cannot_be_indexed_is_taken_back(log, disk):
    log.append_as_follower(_transactional(0))
    disk.fail = failing(errno.ENOSPC, "pwrite", suffix=".txnindex")
    marker = bytearray(control_batch(ControlType.ABORT, 7, 0, 1, 1000))
    marker[0:8], marker[12:16] = (2).to_bytes(8, "big"), (0).to_bytes(4, "big")
    with pytest.raises(RefreshMetadataError):
        log.append_as_follower(bytes(marker))
    assert (log.log_end_offset, log.last_stable_offset(2)) == (2, 0)
    disk.fail = no_fault
    log.append_as_follower(bytes(marker))
    assert log.last_stable_offset(3) == 3
    assert [(t.first_offset, t.last_offset) for t in log.aborted_transactions(0, 3)] == [(0, 2)]


def test_batch_that_changed_below_the_recovery_point_does_not_keep_the_log_from_being_opened(log, disk):
    for number in range(8):
        log.append_as_leader(produced_batch(b"x" * 60, producer=(7, 0, number)), 0, now_ms=0)
    log.flush()
    disk.kill()
    for path in [path for path in disk.paths() if path.suffix == ".snapshot"]:
        disk.remove(path)
    disk.flip_bit(DIRECTORY / "00000000000000000000.log", 8, 6)
    again = PartitionLog.open(DIRECTORY, CONFIG, files=disk, recovery_point=8)
    assert again.log_end_offset == 8
    assert content_from(again, 7)


def test_epochs_are_known_again_after_a_crash_took_the_log_start_back(log, disk):
    for number in range(8):
        log.append_as_leader(produced_batch(b"x" * 60, b"y"), number // 3, now_ms=0)
    log.flush()
    log.advance_log_start_offset(9)
    disk.kill()
    again = PartitionLog.open(DIRECTORY, CONFIG, files=disk, recovery_point=16)
    assert again.log_start_offset == 0
    assert [(entry.epoch, entry.start_offset) for entry in again.epoch_entries] == [(0, 0), (1, 6), (2, 12)]
    assert len(content(again)) == 8


def test_log_start_inside_a_batch_does_not_go_back_when_the_batch_is_cut(log):
    log.append_as_leader(produced_batch(b"a", b"b", b"c"), 0, now_ms=0)
    log.advance_log_start_offset(2)
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def content_from(log: PartitionLog, offset: int) -> bytes:
    return log.read(offset, 1, log.log_end_offset)


def _transactional(offset: int) -> bytes:
    batch = bytearray(produced_batch(b"a", b"b", producer=(7, 0, 0), is_transactional=True))
    batch[0:8], batch[12:16] = offset.to_bytes(8, "big"), (0).to_bytes(4, "big")
    return bytes(batch)
