"""The end of a segment: the rules, and their effects on the log."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_disk import failing

from tidelog_foundation.config.topic import UNLIMITED
from tidelog_foundation.errors import TidelogError
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.local_log import lifetime_ms, roll_jitter_ms, waited_ms

DIRECTORY = Path("/data/topic-0")
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("first", "created", "batch", "now", "waited"),
    [
        (100, 5, 350, 9999, 250),
        (100, 5, 50, 9999, -50),
        (100, 5, -1, 9999, -101),
        (0, 5, 7, 9999, 7),
        (-1, 1000, 350, 1300, 300),
        (-1, 1000, -1, 1300, 300),
    ],
)
def test_waiting_time_is_that_of_the_records_where_they_have_one(first, created, batch, now, waited):
    assert waited_ms(first, created, batch, now) == waited


@pytest.mark.parametrize(
    ("policy", "segment_ms", "lag_ms", "lifetime"),
    [
        (("delete",), 100, 10, 100),
        (("compact",), 100, 10, 10),
        (("compact",), 100, 1000, 100),
        (("compact", "delete"), 100, UNLIMITED, 100),
    ],
)
def test_lifetime_of_a_compacted_segment_is_bounded_by_the_compaction_lag(policy, segment_ms, lag_ms, lifetime):
    config = LogConfig(cleanup_policy=policy, segment_ms=segment_ms, max_compaction_lag_ms=lag_ms)
    assert lifetime_ms(config) == lifetime
    assert lifetime_ms(config, 3) == lifetime - 3


@given(st.integers(0, 2**62), st.integers(1, 2**62), st.text(max_size=20), st.integers(0, 2**63 - 1))
def test_jitter_is_below_its_setting_and_the_lifetime_and_always_the_same(jitter, segment_ms, name, base_offset):
    config = LogConfig(segment_jitter_ms=jitter, segment_ms=segment_ms)
    found = roll_jitter_ms(config, name, base_offset)
    assert 0 <= found < max(1, min(jitter, segment_ms))
    assert found == roll_jitter_ms(config, name, base_offset)


def test_jitter_differs_from_partition_to_partition_and_segment_to_segment():
    config = LogConfig(segment_jitter_ms=HOUR_MS)
    assert len({roll_jitter_ms(config, f"topic-{p}", base) for p in range(20) for base in range(0, 100, 10)}) > 190


def _log(disk, **changes):
    return PartitionLog.open(DIRECTORY, LogConfig(**changes), files=disk, now_ms=50)


def test_segment_ends_when_a_batch_is_too_late_for_it(disk, batch_of):
    log = _log(disk, segment_ms=100)
    for timestamp in (1000, 1090, 1099):
        log.append_as_leader(batch_of(b"a", b"b", timestamp_ms=timestamp), 0, now_ms=10**6)
    assert log.segment_count == 1
    log.append_as_leader(batch_of(b"a", timestamp_ms=1102), 0, now_ms=10**6)
    assert log.active_base_offset == 6


def test_segment_without_timestamps_ends_that_long_after_its_creation(disk, batch_of):
    log = _log(disk, segment_ms=100)
    for now in (0, 149, 150):
        log.append_as_leader(batch_of(b"a", timestamp_ms=-1), 0, now_ms=now)
    assert log.segment_count == 1
    log.append_as_leader(batch_of(b"a", timestamp_ms=-1), 0, now_ms=151)
    log.append_as_leader(batch_of(b"a", timestamp_ms=-1), 0, now_ms=251)
    assert log.segment_count == 2


def test_time_for_rolling_survives_a_restart(disk, batch_of):
    log = _log(disk, segment_ms=100)
    log.append_as_leader(batch_of(b"a", timestamp_ms=1000), 0, now_ms=0)
    log.close()
    log = PartitionLog.open(DIRECTORY, LogConfig(segment_ms=100), files=disk, clean=True)
    log.append_as_leader(batch_of(b"a", timestamp_ms=1101), 0, now_ms=0)
    assert log.segment_count == 2


def test_follower_rolls_by_time_between_the_batches_of_one_fetch(disk, replicated):
    log = _log(disk, segment_ms=100)
    log.append_as_follower(b"".join(replicated(i, 0, b"x", timestamp_ms=60 * i) for i in range(6)))
    assert log.active_base_offset == 4
    assert log.segment_count == 3
    log.check_invariants()


def test_settings_that_change_hold_for_the_segment_that_grows(disk, batch_of):
    log = _log(disk)
    log.append_as_leader(batch_of(b"a", timestamp_ms=0), 0, now_ms=0)
    log.config = LogConfig(segment_ms=10)
    log.append_as_leader(batch_of(b"a", timestamp_ms=11), 0, now_ms=0)
    log.config = LogConfig(segment_bytes=80)
    log.append_as_leader(batch_of(b"a", timestamp_ms=11), 0, now_ms=0)
    assert log.segment_count == 3


def test_roll_closes_a_segment_that_has_records_and_no_other(disk, batch_of):
    log = _log(disk)
    log.roll(0)
    assert log.segment_count == 1
    log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
    log.roll(0)
    log.roll(0)
    assert (log.segment_count, log.active_base_offset) == (2, 2)
    assert [segment.next_offset for segment in log.sealed_segments()] == [2]
    assert DIRECTORY / "00000000000000000002.snapshot" in disk.paths()


def test_preallocated_segment_has_its_size_at_once_and_gives_the_rest_back(disk, batch_of):
    log = _log(disk, segment_bytes=4096, preallocate=True)
    first = DIRECTORY / "00000000000000000000.log"
    assert (disk.size_of(first), log.size_in_bytes) == (4096, 0)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    size = log.size_in_bytes
    assert disk.size_of(first) == 4096
    log.roll(0)
    assert disk.size_of(first) == size
    log.append_as_leader(batch_of(b"b"), 0, now_ms=0)
    log.close()
    assert disk.size_of(DIRECTORY / "00000000000000000001.log") == size


def test_zeros_of_a_preallocated_segment_are_no_corruption_after_a_kill(disk, batch_of, caplog):
    log = _log(disk, segment_bytes=4096, preallocate=True)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    log.roll(0)
    log.append_as_leader(batch_of(b"b"), 0, now_ms=0)
    disk.kill()
    log = _log(disk, segment_bytes=4096, preallocate=True)
    assert (log.log_end_offset, log.recovery.fault, log.recovery.truncated_bytes) == (2, None, 0)
    assert not caplog.records
    log.append_as_leader(batch_of(b"c"), 0, now_ms=0)
    log.check_invariants()


def test_torn_batch_in_a_preallocated_segment_is_cut(disk, batch_of):
    log = _log(disk, segment_bytes=4096, preallocate=True)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    size = log.size_in_bytes
    disk.kill()
    path = DIRECTORY / "00000000000000000000.log"
    data = bytearray(disk.read_bytes(path))
    data[size : size + 30] = data[:30]
    disk.write_bytes(path, bytes(data))
    log = _log(disk, segment_bytes=4096, preallocate=True)
    assert log.log_end_offset == 1
    assert log.recovery.fault is not None


def test_preallocation_on_a_full_disk_leaves_the_log_as_it_was(disk, batch_of):
    log = _log(disk, segment_bytes=4096, preallocate=True)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    disk.capacity = 0
    with pytest.raises(TidelogError, match="No space left"):
        log.roll(0)
    assert (log.segment_count, log.failure) == (1, None)
    disk.capacity = None
    log.append_as_leader(batch_of(b"b"), 0, now_ms=0)
    log.roll(0)
    log.check_invariants()


def test_log_is_flushed_after_so_many_records(disk, batch_of):
    log = _log(disk, flush_messages=3)
    log.append_as_leader(batch_of(b"a", b"b"), 0, now_ms=0)
    assert log.recovery_point == 0
    log.append_as_leader(batch_of(b"c"), 0, now_ms=0)
    assert log.recovery_point == 3
    assert disk.unsynced_paths == []


def test_flush_is_needed_when_a_record_has_waited_for_long_enough(disk, batch_of):
    log = _log(disk, flush_ms=100)
    assert not log.needs_flush(10**9)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=1000)
    log.append_as_leader(batch_of(b"b"), 0, now_ms=1099)
    assert not log.needs_flush(1099)
    assert log.needs_flush(1100)
    log.flush()
    assert not log.needs_flush(1100)
    log.append_as_leader(batch_of(b"c"), 0, now_ms=2000)
    assert not log.needs_flush(2099)
    assert log.needs_flush(2100)


def test_flush_is_needed_for_a_segment_that_was_closed(disk, batch_of):
    log = _log(disk)
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    assert not log.needs_flush(0)
    log.roll(0)
    assert log.needs_flush(0)
    log.flush()
    assert not log.needs_flush(0)
    assert DIRECTORY / "00000000000000000000.index" in disk.paths()


def test_append_that_cannot_flush_takes_the_log_offline(disk, batch_of):
    log = _log(disk, flush_messages=1)
    disk.fail = failing(errno.EIO, "fsync", suffix=".log")
    with pytest.raises(TidelogError, match="Flushing"):
        log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    assert log.failure is not None


def test_config_is_the_one_that_was_set_last(disk, config):
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    changed = dataclasses.replace(config, flush_messages=7)
    log.config = changed
    assert log.config is changed
