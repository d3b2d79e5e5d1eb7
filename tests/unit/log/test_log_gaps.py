"""Offsets with gaps, as compaction leaves them: between batches, between segments, at both ends of a segment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from timestamp_searches import find_by_timestamp, find_max_timestamp

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import iter_headers, parse_header
from tidelog_node.log import LogConfig, PartitionLog

DIRECTORY = Path("/data/topic-0")
BASES = (3, 5, 6, 20, 21, 40, 41, 43, 90)
"""The base offsets of batches of one record each; those of 100 bytes make segments of three."""
CONFIG = LogConfig(segment_bytes=540, index_interval_bytes=100, segment_index_bytes=1024)


def _fill(log, replicated, bases=BASES, epoch=0):
    for base in bases:
        log.append_as_follower(replicated(base, epoch, b"x" * 100, timestamp_ms=base))
    return log


@pytest.fixture
def log(disk, replicated):
    log = _fill(PartitionLog.open(DIRECTORY, CONFIG, files=disk), replicated)
    assert [segment.base_offset for segment in log.sealed_segments()] == [0, 7]
    log.check_invariants()
    return log


def _bases(chunk):
    return [header.base_offset for _, header in iter_headers(chunk)]


def _reopened(log, disk, **options):
    log.close()
    return PartitionLog.open(DIRECTORY, CONFIG, files=disk, **options)


@pytest.mark.parametrize("way", ["as it is", "clean", "checked"])
def test_read_in_a_gap_goes_on_with_the_next_batch(log, disk, way):
    if way != "as it is":
        log = _reopened(log, disk, clean=way == "clean")
    for offset in range(91):
        expected = min(base for base in BASES if base >= offset)
        assert parse_header(log.read(offset, 1, 91)).base_offset == expected, offset
    assert log.read(91, 1, 91) == b""
    assert _bases(log.read(7, 10_000, 91)) == [20, 21, 40]
    log.check_invariants()


@pytest.mark.parametrize(
    ("offset", "end", "expected"), [(0, 6, [3, 5]), (7, 20, []), (7, 41, [20, 21, 40]), (44, 90, [])]
)
def test_read_stays_below_its_end_in_a_gap(log, offset, end, expected):
    assert _bases(log.read(offset, 10_000, end)) == expected


def test_follower_accepts_a_gap_and_nothing_below_its_end(log, replicated):
    with pytest.raises(CorruptRecordError, match="expected offset 91"):
        log.append_as_follower(replicated(90, 0, b"again"))
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(replicated(95, 0, b"a", b"b") + replicated(96, 0, b"overlaps"))
    assert log.log_end_offset == 91
    assert log.append_as_follower(replicated(95, 0, b"a")).first_offset == 95


def test_segment_after_a_gap_begins_where_its_predecessor_ends(log):
    assert [segment.next_offset for segment in log.sealed_segments()] == [7, 41]
    assert log.active_base_offset == 41


def test_gap_beyond_the_reach_of_relative_offsets_survives_a_crash(disk, replicated):
    far = 2**31 + 50
    for seed in range(20):
        disk = type(disk)()
        log = _fill(PartitionLog.open(DIRECTORY, CONFIG, files=disk), replicated, (3, 5))
        log.append_as_follower(replicated(far, 0, b"far"))
        assert [segment.base_offset for segment in log.sealed_segments()] == [0]
        assert log.active_base_offset == far
        log.check_invariants()
        disk.crash(random.Random(seed))
        log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
        assert log.log_end_offset in (6, far, far + 1), seed
        assert parse_header(log.read(0, 1, 6)).base_offset == 3


def test_empty_segment_gives_way_to_one_in_reach(disk, replicated):
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
    log.append_as_follower(replicated(2**40, 0, b"far"))
    assert parse_header(log.read(0, 1, 2**40 + 1)).base_offset == 2**40
    log.check_invariants()
    log.close()
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
    assert (log.log_end_offset, log.recovery.fault) == (2**40 + 1, None)


@pytest.mark.parametrize("offset", [90, 44, 43, 42, 41, 30, 20, 10, 7, 6, 4, 2])
@pytest.mark.parametrize("is_reopened", [True, False])
def test_truncation_in_a_gap_ends_the_log_where_the_batch_before_ends(log, disk, replicated, offset, is_reopened):
    if is_reopened:
        log = _reopened(log, disk, clean=True)
    log.truncate_to(offset)
    kept = [base for base in BASES if base < offset]
    assert log.log_end_offset <= offset
    assert log.log_end_offset >= max((base + 1 for base in kept), default=0)
    log.check_invariants()
    end = log.log_end_offset
    log = _reopened(log, disk, clean=False)
    assert (log.log_end_offset, log.recovery.fault) == (end, None)
    log.append_as_follower(replicated(offset, 0, b"again"))
    assert parse_header(log.read(end, 1, offset + 1)).base_offset == offset
    log.check_invariants()


def test_epoch_that_begins_in_a_gap_is_believed_after_recovery(disk, replicated):
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
    log.append_as_follower(replicated(0, 1, b"a"))
    log.assign_epoch_start(2, 1)
    log.append_as_follower(replicated(10, 2, b"b"))
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(1, 0), (2, 1)]
    log = _reopened(log, disk, clean=False)
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(1, 0), (2, 1)]
    assert log.end_offset_for_epoch(1) == (1, 1)


def test_epochs_that_disagree_with_the_batches_are_taken_from_them(disk, replicated):
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
    for base, epoch in ((0, 1), (5, 2), (9, 4)):
        log.append_as_follower(replicated(base, epoch, b"a"))
    log.close()
    disk.write_bytes(DIRECTORY / "leader-epoch-checkpoint", b"0\n2\n1 0\n3 4\n")
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(1, 0), (2, 5), (4, 9)]
    log.check_invariants()


def test_timestamps_are_found_across_gaps(log):
    assert [find_by_timestamp(log, t).offset for t in (0, 7, 44, 90)] == [3, 20, 90, 90]
    assert find_max_timestamp(log).offset == 90
    log.advance_log_start_offset(42)
    assert find_by_timestamp(log, 0).offset == 43
