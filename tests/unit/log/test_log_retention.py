"""The segments that retention deletes: the rules as a table and against a model, and their effects on the log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_disk import failing, no_fault
from timestamp_searches import find_by_timestamp, find_max_timestamp

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.retention import Reason, RetentionPoint, SegmentExtent, find_expired

DIRECTORY = Path("/data/topic-0")
FOUR = [SegmentExtent(10, 100), SegmentExtent(20, 100), SegmentExtent(30, 100), SegmentExtent(40, 50)]
START, SIZE, TIME = Reason.LOG_START, Reason.SIZE, Reason.TIME


@pytest.mark.parametrize(
    ("changes", "start", "high_watermark", "now", "expected"),
    [
        ({}, 0, 40, 0, []),
        ({}, 9, 40, 0, []),
        ({}, 10, 40, 0, [START]),
        ({}, 29, 40, 0, [START, START]),
        ({}, 40, 40, 0, [START, START, START]),
        ({}, 40, 19, 0, [START]),
        ({"cleanup_policy": ("compact",), "retention_ms": 0, "retention_bytes": 0}, 10, 40, 10**9, [START]),
        ({"cleanup_policy": ("compact", "delete"), "retention_bytes": 150}, 0, 40, 0, [SIZE, SIZE]),
        ({"retention_bytes": 350}, 0, 40, 0, []),
        ({"retention_bytes": 251}, 0, 40, 0, []),
        ({"retention_bytes": 250}, 0, 40, 0, [SIZE]),
        ({"retention_bytes": 50}, 0, 40, 0, [SIZE, SIZE, SIZE]),
        ({"retention_bytes": 0}, 0, 40, 0, [SIZE, SIZE, SIZE, SIZE]),
        ({"retention_bytes": 0}, 0, 39, 0, [SIZE, SIZE, SIZE]),
        ({"retention_bytes": 150}, 10, 40, 0, [START, SIZE]),
        ({"retention_ms": 5}, 0, 40, 1005, []),
        ({"retention_ms": 5}, 0, 40, 1006, [TIME]),
        ({"retention_ms": 5}, 0, 9, 1006, []),
        ({"retention_ms": 5}, 0, 40, 10**6, [TIME, TIME, TIME, TIME]),
        ({"retention_ms": -1}, 0, 40, 10**6, []),
        ({"retention_ms": 5, "retention_bytes": 250}, 10, 40, 3006, [START, TIME, TIME]),
        ({"retention_ms": 5, "retention_bytes": 150}, 10, 40, 3006, [START, SIZE, TIME]),
    ],
)
def test_segments_that_go_and_why(changes, start, high_watermark, now, expected):
    config = LogConfig(**{"retention_ms": -1, **changes})
    point = RetentionPoint(start, high_watermark, now)
    assert find_expired(FOUR, lambda index: 1000 * (index + 1), config, point) == expected


def test_empty_active_segment_stays():
    extents = [SegmentExtent(10, 100), SegmentExtent(10, 0)]
    config = LogConfig(retention_ms=0, retention_bytes=0)
    assert find_expired(extents, lambda index: 0, config, RetentionPoint(0, 10, 10**6)) == [SIZE]
    assert find_expired(extents[1:], lambda index: 0, config, RetentionPoint(0, 10, 10**6)) == []


def test_segment_with_a_future_timestamp_holds_back_those_behind_it():
    config = LogConfig(retention_ms=5)
    assert find_expired(FOUR, [0, 10**9, 0, 0].__getitem__, config, RetentionPoint(0, 40, 1000)) == [TIME]


def test_timestamps_are_asked_for_only_where_time_decides():
    asked = []
    config = LogConfig(retention_ms=-1, retention_bytes=250)
    find_expired(FOUR, asked.append, config, RetentionPoint(0, 40, 0))
    assert asked == []


SEGMENTS = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=6)


@given(SEGMENTS, st.integers(-1, 30), st.integers(-1, 20), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_what_goes_is_the_longest_run_that_each_rule_allows(
    segments, retention_bytes, retention_ms, log_start, high_watermark, deletes
):
    """By their definitions, tried for every number of segments."""
    ends, extents = 0, []
    for length, size, _ in segments:
        ends += length
        extents.append(SegmentExtent(ends, size))
    log_start = min(log_start, ends)
    policy = ("delete",) if deletes else ("compact",)
    config = LogConfig(retention_bytes=retention_bytes, retention_ms=retention_ms, cleanup_policy=policy)
    point = RetentionPoint(log_start, high_watermark, 20)
    reasons = find_expired(extents, lambda index: segments[index][2], config, point)
    gone = len(reasons)
    assert all(extent.end_offset <= high_watermark for extent in extents[:gone])
    assert gone < len(extents) or extents[-1].size > 0
    assert reasons == sorted(reasons, key=[START, SIZE, TIME].index)
    for index, reason in enumerate(reasons):
        left = sum(extent.size for extent in extents[index + 1 :])
        assert reason is not START or extents[index].end_offset <= log_start
        assert reason is not SIZE or left >= retention_bytes >= 0
        assert reason is not TIME or 20 - segments[index][2] > retention_ms >= 0
    if gone < len(extents) and extents[gone].end_offset <= high_watermark:
        is_last = gone == len(extents) - 1
        assert is_last or extents[gone].end_offset > log_start
        if deletes and not (is_last and not extents[-1].size):
            assert retention_ms < 0 or 20 - segments[gone][2] <= retention_ms


@pytest.fixture
def log(disk, config, batch_of):
    """Five segments of two batches of two records, with the timestamps 0 to 9 by batch."""
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    for index in range(10):
        log.append_as_leader(batch_of(b"x" * 60, b"y" * 60, timestamp_ms=index), index // 4, now_ms=0)
        if index % 2:
            log.roll(0)
    assert log.segment_count == 6
    return log


def _names(disk, suffix):
    return [path.name for path in disk.paths() if path.name.endswith(suffix)]


def test_expired_segments_are_renamed_and_removed_after_their_delay(log, disk, config):
    log.flush()
    log.config = LogConfig(retention_ms=2, file_delete_delay_ms=100)
    assert log.delete_expired(8, high_watermark=20) == ["00000000000000000000.log", "00000000000000000004.log"]
    assert (log.log_start_offset, log.segment_count) == (8, 4)
    assert len(_names(disk, ".log.deleted")) == 2
    assert len(_names(disk, "index.deleted")) == 4
    assert log.remove_deleted_files(107) == 0
    assert log.remove_deleted_files(108) == 6
    assert _names(disk, ".deleted") == []
    assert not [name for name in _names(disk, ".snapshot") if name < "00000000000000000008"]
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(1, 8), (2, 16)]
    log.check_invariants()


def test_records_of_a_deleted_segment_are_out_of_range(log):
    log.config = LogConfig(retention_ms=2)
    log.delete_expired(8, high_watermark=20)
    with pytest.raises(TidelogError, match="log start 8") as caught:
        log.read(7, 100, 20)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert find_by_timestamp(log, 0).offset == 8


def test_nothing_above_the_high_watermark_is_deleted(log):
    log.config = LogConfig(retention_ms=0, retention_bytes=0)
    assert len(log.delete_expired(10**9, high_watermark=11)) == 2
    assert log.log_start_offset == 8


def test_active_segment_is_rolled_when_it_goes(log, disk, batch_of):
    log.append_as_leader(batch_of(b"z", timestamp_ms=9), 9, now_ms=0)
    log.config = LogConfig(retention_ms=5)
    assert len(log.delete_expired(100, high_watermark=21)) == 6
    assert (log.log_start_offset, log.log_end_offset, log.size_in_bytes, log.segment_count) == (21, 21, 0, 1)
    assert log.latest_epoch == 9
    log.close()
    again = PartitionLog.open(DIRECTORY, LogConfig(), files=disk, clean=True)
    assert (again.log_start_offset, again.log_end_offset, again.latest_epoch) == (21, 21, -1)
    assert _names(disk, ".deleted") == []


def test_full_disk_without_room_for_a_successor_gives_up_the_other_segments(log, disk, batch_of):
    log.append_as_leader(batch_of(b"z", timestamp_ms=9), 9, now_ms=0)
    log.config = LogConfig(retention_ms=5)
    disk.fail = failing(errno.ENOSPC, "open", name=f"{21:020d}.log")
    assert len(log.delete_expired(100, high_watermark=21)) == 5
    assert (log.log_start_offset, log.log_end_offset, log.segment_count, log.failure) == (20, 21, 1, None)
    with pytest.raises(TidelogError, match=r"Rolling a segment of .* failed"):
        log.delete_expired(100, high_watermark=21)
    disk.fail = no_fault
    assert log.delete_expired(100, high_watermark=21) == [f"{20:020d}.log"]
    log.check_invariants()


def test_age_of_records_without_timestamps_is_that_of_the_file(disk, batch_of):
    log = PartitionLog.open(DIRECTORY, LogConfig(retention_ms=50), files=disk)
    log.append_as_leader(batch_of(b"a", timestamp_ms=-1), 0, now_ms=0)
    log.roll(0)
    log.sealed_segments()[0].set_modified_ms(1000)
    assert log.delete_expired(1050, high_watermark=1) == []
    assert len(log.delete_expired(1051, high_watermark=1)) == 1


def test_log_start_inside_a_segment_hides_records_and_deletes_whole_segments(log, disk, config):
    assert log.advance_log_start_offset(9)
    assert not log.advance_log_start_offset(9)
    assert not log.advance_log_start_offset(5)
    assert log.log_start_offset == 9
    with pytest.raises(TidelogError, match="log start 9"):
        log.read(8, 100, 20)
    assert find_by_timestamp(log, 0).offset == 9
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(1, 9), (2, 16)]
    assert len(log.delete_expired(0, high_watermark=20)) == 2
    assert (log.log_start_offset, log.segment_count) == (9, 4)
    log.check_invariants()
    log.close()
    again = PartitionLog.open(DIRECTORY, config, files=disk, clean=True, log_start_offset=9)
    assert again.log_start_offset == 9
    assert [(e.epoch, e.start_offset) for e in again.epoch_entries] == [(1, 9), (2, 16)]


def test_log_start_above_the_end_is_refused(log):
    with pytest.raises(TidelogError, match="cannot start at 21, above its end 20") as caught:
        log.advance_log_start_offset(21)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_largest_timestamp_is_that_of_the_records_that_can_be_read(disk, batch_of):
    log = PartitionLog.open(DIRECTORY, LogConfig(), files=disk)
    for timestamp in (900, 100, 200, 50):
        log.append_as_leader(batch_of(b"a", b"b", timestamp_ms=timestamp), 0, now_ms=0)
    assert (find_max_timestamp(log).timestamp_ms, find_max_timestamp(log).offset) == (901, 1)
    log.advance_log_start_offset(1)
    assert find_max_timestamp(log).offset == 1
    log.advance_log_start_offset(2)
    assert (find_max_timestamp(log).timestamp_ms, find_max_timestamp(log).offset) == (201, 5)
    log.advance_log_start_offset(8)
    assert find_max_timestamp(log) is None


def test_log_that_ends_below_its_checkpointed_start_begins_there(log, disk, config, caplog):
    log.close()
    again = PartitionLog.open(DIRECTORY, config, files=disk, clean=True, log_start_offset=33)
    assert (again.log_start_offset, again.log_end_offset, again.latest_epoch, again.size_in_bytes) == (33, 33, -1, 0)
    assert "restarts at its log start offset 33" in caplog.text


def test_new_log_begins_at_the_checkpointed_start(disk, config):
    log = PartitionLog.open(DIRECTORY, config, files=disk, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_truncation_below_a_log_start_inside_the_first_segment_moves_it_back(log):
    log.advance_log_start_offset(3)
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_deletion_that_the_disk_refuses_deletes_the_older_ones(log, disk):
    log.flush()
    log.config = LogConfig(retention_ms=0)
    disk.fail = failing(errno.EIO, "rename", name="00000000000000000004.log")
    with pytest.raises(TidelogError, match=r"Deleting .*4\.log failed"):
        log.delete_expired(100, high_watermark=20)
    disk.fail = no_fault
    assert (log.failure, log.segment_count) == (None, 5)
    log.check_invariants()
    assert len(log.delete_expired(100, high_watermark=20)) == 4
    assert log.log_start_offset == 20


def test_deleted_file_that_cannot_be_removed_is_tried_again(log, disk):
    log.flush()
    log.config = LogConfig(retention_ms=2, file_delete_delay_ms=0)
    log.delete_expired(8, high_watermark=20)
    disk.fail = failing(errno.EIO, "remove")
    with pytest.raises(TidelogError, match=r"Removing .*\.deleted failed"):
        log.remove_deleted_files(8)
    disk.fail = no_fault
    assert log.remove_deleted_files(8) == 6
    assert log.remove_deleted_files(8) == 0
