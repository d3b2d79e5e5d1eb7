from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from timestamp_searches import find_by_timestamp, find_max_timestamp

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, RefreshMetadataError, TidelogError
from tidelog_foundation.records import LOG_APPEND_TIME, iter_headers, parse_header, read_records, validate_batch
from tidelog_node.log import LogConfig, PartitionLog, TimestampAndOffset

DIRECTORY = Path("/data/topic-0")


@pytest.fixture
def log(disk, config):
    return PartitionLog.open(DIRECTORY, config, files=disk)


def test_append_as_leader_assigns_offsets_and_epoch(log, batch_of):
    first = log.append_as_leader(batch_of(b"a", b"b"), 3, now_ms=5)
    second = log.append_as_leader(batch_of(b"c"), 4, now_ms=5)
    assert (first.first_offset, first.last_offset, first.last_leader_epoch) == (0, 1, 3)
    assert (first.log_append_time_ms, first.max_timestamp) == (-1, 1001)
    assert (second.first_offset, second.last_offset) == (2, 2)
    assert [(h.base_offset, h.partition_leader_epoch) for _, h in iter_headers(log.read(0, 1000, 3))] == [
        (0, 3),
        (2, 4),
    ]
    assert log.latest_epoch == 4


def test_append_as_leader_sets_the_time_of_the_append_when_configured(disk, config, batch_of):
    config = dataclasses.replace(config, message_timestamp_type="LogAppendTime")
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    info = log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=77)
    stored = log.read(0, 1000, 2)
    assert (info.log_append_time_ms, info.max_timestamp) == (77, 77)
    assert validate_batch(stored).timestamp_type == LOG_APPEND_TIME
    assert [record.timestamp_ms for record in read_records(stored)] == [77, 77]


def test_append_as_leader_names_size_and_limit_of_a_large_batch(log, disk, config, batch_of):
    batch = batch_of(b"x" * 500)
    with pytest.raises(TidelogError, match=rf"{len(batch)} bytes, max.message.bytes allows 500") as caught:
        log.append_as_leader(batch, 0, now_ms=0)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    log.config = dataclasses.replace(config, max_message_bytes=10_000, segment_bytes=400)
    with pytest.raises(TidelogError, match=rf"{len(batch)} bytes, segment.bytes allows 400") as caught:
        log.append_as_leader(batch, 0, now_ms=0)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_append_as_leader_refuses_an_epoch_before_the_latest(log, batch_of):
    log.append_as_leader(batch_of(b"a"), 5, now_ms=0)
    with pytest.raises(TidelogError, match="leader epoch 4, the log has epoch 5") as caught:
        log.append_as_leader(batch_of(b"b"), 4, now_ms=0)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_append_as_leader_refuses_a_changed_batch(log, batch_of):
    batch = bytearray(batch_of(b"value"))
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_leader(bytes(batch), 0, now_ms=0)
    assert log.size_in_bytes == 0


def test_append_as_follower_takes_several_batches_over_segments_and_epochs(log, replicated):
    buffer = b"".join(replicated(i * 2, i // 4, b"x" * 50, b"y" * 50) for i in range(12))
    info = log.append_as_follower(buffer)
    assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (0, 23, 2)
    assert log.segment_count > 2
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(0, 0), (1, 8), (2, 16)]
    log.check_invariants()


def test_append_as_follower_appends_nothing_when_a_later_batch_is_bad(log, replicated):
    changed = bytearray(replicated(1, 0, b"b"))
    changed[-1] ^= 1
    for bad in (bytes(changed), replicated(0, 0, b"again"), replicated(1, 0, b"torn")[:-1]):
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(replicated(0, 0, b"a") + bad)
    assert (log.log_end_offset, log.size_in_bytes) == (0, 0)


def test_append_as_follower_takes_the_batch_that_an_empty_log_starts_in(log, disk, config, replicated):
    log.truncate_fully_and_start_at(7)
    log.append_as_follower(replicated(5, 2, b"a", b"b", b"c") + replicated(8, 3, b"d"))
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (7, 9, 3)
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(2, 7), (3, 8)]
    assert [h.base_offset for _, h in iter_headers(log.read(7, 1000, 9))] == [5, 8]
    with pytest.raises(TidelogError, match=r"offset 6 of .* is not between log start 7"):
        log.read(6, 1000, 9)
    log.check_invariants()
    log.close()
    again = PartitionLog.open(DIRECTORY, config, files=disk, log_start_offset=7)
    assert (again.log_start_offset, again.log_end_offset) == (7, 9)
    again.check_invariants()


def test_append_as_follower_leaves_an_empty_log_as_it_was_when_the_batch_it_starts_in_is_bad(log, replicated):
    log.truncate_fully_and_start_at(7)
    batch = bytearray(replicated(5, 2, b"a", b"b", b"c"))
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(bytes(batch))
    assert (log.log_start_offset, log.log_end_offset, log.epoch_entries) == (7, 7, ())
    log.check_invariants()
    log.append_as_follower(replicated(7, 2, b"c"))
    assert (log.log_start_offset, log.log_end_offset) == (7, 8)


def test_append_as_follower_refuses_batches_below_the_start_of_an_empty_log(log, replicated):
    log.truncate_fully_and_start_at(7)
    with pytest.raises(CorruptRecordError, match="expected offset 7"):
        log.append_as_follower(replicated(5, 2, b"a", b"b"))
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_append_as_follower_refuses_an_epoch_before_that_of_the_last_record(log, replicated):
    log.append_as_follower(replicated(0, 4, b"a"))
    log.assign_epoch_start(9, 1)
    with pytest.raises(CorruptRecordError, match="leader epoch 4 or later"):
        log.append_as_follower(replicated(1, 3, b"b"))
    log.append_as_follower(replicated(1, 4, b"b"))
    assert [(e.epoch, e.start_offset) for e in log.epoch_entries] == [(4, 0)]


def test_append_rolls_before_a_relative_offset_leaves_int32(disk, replicated):
    config = LogConfig(index_interval_bytes=0)
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    log.append_as_follower(_batch_with_delta(replicated(0, 0, b"a"), 2**31 - 2))
    log.append_as_follower(replicated(2**31 - 1, 0, b"b"))
    assert log.segment_count == 1
    log.append_as_follower(replicated(2**31, 0, b"c"))
    assert log.segment_count == 2
    assert parse_header(log.read(2**31, 1000, 2**31 + 1)).base_offset == 2**31
    log.check_invariants()


def test_append_rolls_when_an_index_is_full(disk, batch_of):
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=32)
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    for index in range(8):
        log.append_as_leader(batch_of(b"a", timestamp_ms=index), 0, now_ms=0)
    assert log.segment_count > 2
    log.check_invariants()


def test_read_names_offset_and_bounds_when_out_of_range(log, batch_of):
    log.truncate_fully_and_start_at(10)
    log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
    for offset in (9, 13):
        with pytest.raises(TidelogError, match=f"offset {offset} .* log start 10 and log end 12") as caught:
            log.read(offset, 100, 12)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(12, 100, 12) == b""


def test_read_gives_at_least_one_batch_and_stays_below_the_end_offset(log, batch_of):
    for _ in range(4):
        log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
    size = log.size_in_bytes // 4
    assert parse_header(log.read(3, 0, 8)).base_offset == 2
    assert len(log.read(0, 2 * size + 1, 8)) == 2 * size
    assert len(log.read(0, 10_000, 6)) == 3 * size
    assert log.read(6, 10_000, 7) == b""


def test_truncation_below_the_log_start_starts_the_log_there(log, batch_of):
    log.truncate_fully_and_start_at(10)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (4, 4, -1)


def test_truncation_at_the_end_forgets_an_epoch_without_records(log, batch_of):
    log.append_as_leader(batch_of(b"a"), 1, now_ms=0)
    log.assign_epoch_start(2, 1)
    assert log.end_offset_for_epoch(1) == (1, 1)
    log.truncate_to(1)
    assert log.latest_epoch == 1
    assert log.end_offset_for_epoch(2) == (-1, -1)


def test_timestamps_are_found_across_segments(log, batch_of):
    for index in range(12):
        log.append_as_leader(batch_of(b"x" * 60, b"y" * 60, timestamp_ms=1000 * index), 0, now_ms=0)
    assert log.segment_count > 2
    assert find_by_timestamp(log, 5001) == TimestampAndOffset(5001, 11, 0)
    assert find_by_timestamp(log, 0) == TimestampAndOffset(0, 0, 0)
    assert find_by_timestamp(log, 11_002) is None
    assert find_max_timestamp(log) == TimestampAndOffset(11_001, 23, 0)


def test_timestamps_are_not_found_in_an_empty_log(log):
    assert find_max_timestamp(log) is None
    assert find_by_timestamp(log, 0) is None


def test_closed_log_refuses_and_may_be_closed_again(log, batch_of):
    log.close()
    log.close()
    with pytest.raises(RefreshMetadataError, match="is closed"):
        log.append_as_leader(batch_of(b"a"), 0, now_ms=0)


def test_deleted_log_leaves_no_file(log, disk, batch_of):
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    log.delete()
    assert disk.paths() == []
    assert disk.handle_count == 0


def _batch_with_delta(batch: bytes, delta: int) -> bytes:
    """A batch whose last offset delta is larger than its records need, as after compaction."""
    from crc32c import crc32c

    changed = bytearray(batch)
    changed[23:27] = delta.to_bytes(4, "big")
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return bytes(changed)


@pytest.mark.parametrize("has_records", [True, False])
def test_untouched_log_is_opened_led_and_closed_without_a_write(disk, config, batch_of, has_records):
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    for number in range(9 if has_records else 0):
        log.append_as_leader(batch_of(b"x" * 90, b"y" * 90), number, now_ms=0)
    log.close()
    written = []
    changes = {"pwrite", "pwritev", "fsync", "fsync_directory", "rename", "remove", "truncate", "mkdir"}
    disk.fail = lambda operation, path: written.append((operation, path)) if operation in changes else None
    for epoch in (11, 12):
        again = PartitionLog.open(DIRECTORY, config, files=disk, clean=True, recovery_point=log.log_end_offset)
        again.assign_epoch_start(epoch, again.log_end_offset)
        assert again.latest_epoch == epoch
        assert not again.needs_flush(10**9)
        again.flush()
        again.close()
    assert not written


def test_epoch_of_a_leader_without_records_does_not_ask_for_a_flush(disk, config, batch_of):
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    log.assign_epoch_start(3, 0)
    assert not log.needs_flush(10**9)
    log.append_as_leader(batch_of(b"a"), 3, now_ms=0)
    log.flush()
    log.assign_epoch_start(4, 1)
    assert not log.needs_flush(10**9)
    disk.kill()
    again = PartitionLog.open(DIRECTORY, config, files=disk, recovery_point=1)
    assert [(e.epoch, e.start_offset) for e in again.epoch_entries] == [(3, 0)]


def test_last_batch_is_read_whole_from_each_of_its_offsets_also_after_a_truncation(log, batch_of, replicated):
    """It is found without an index, by followers that keep up: what it was must be forgotten with it."""

    def batches(offset, end_offset, max_bytes=1_000):
        return [(h.base_offset, h.last_offset) for _, h in iter_headers(log.read(offset, max_bytes, end_offset))]

    log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
    log.append_as_leader(batch_of(b"c", b"d"), 0, now_ms=0)
    assert batches(2, 4) == batches(3, 4) == batches(3, 4, max_bytes=1) == [(2, 3)]
    assert batches(0, 4) == [(0, 1), (2, 3)]
    assert batches(2, 2) == batches(2, 3) == []
    log.truncate_to(2)
    assert batches(1, 2) == [(0, 1)]
    log.append_as_leader(batch_of(b"e"), 0, now_ms=0)
    assert batches(2, 3) == [(2, 2)]
    log.append_as_follower(replicated(3, 0, b"f"), now_ms=0)
    assert batches(2, 4, max_bytes=1) == [(2, 2)]
    assert batches(2, 4) == [(2, 2), (3, 3)]


def test_last_batch_is_read_with_one_access_to_the_disk(log, disk, batch_of, monkeypatch):
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    reads, pread = [], disk.pread
    monkeypatch.setattr(disk, "pread", lambda *arguments: reads.append(arguments) or pread(*arguments))
    assert log.read(0, 1_000, 1)
    assert len(reads) == 1
