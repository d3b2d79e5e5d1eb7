from __future__ import annotations

import dataclasses
import random
import struct
from pathlib import Path

import pytest
from timestamp_searches import find_by_timestamp

from tidelog_foundation.records import parse_header
from tidelog_node.log import PartitionLog
from tidelog_node.log.segments.segment import segment_name

DIRECTORY = Path("/data/topic-0")
EPOCHS = DIRECTORY / "leader-epoch-checkpoint"


@pytest.fixture
def closed(disk, config, batch_of):
    """A log of several segments and three epochs, closed."""
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    for index in range(15):
        log.append_as_leader(batch_of(b"x" * 40, b"y" * 40, timestamp_ms=index), index // 5, now_ms=0)
    assert log.segment_count >= 4
    log.close()
    return log


def _open(disk, config, **options):
    log = PartitionLog.open(DIRECTORY, config, files=disk, **options)
    log.check_invariants()
    return log


def _segments(disk):
    return [path for path in disk.paths() if path.suffix == ".log"]


def test_clean_open_reads_no_batch_before_the_last_index_entry(disk, config, closed):
    reads = []
    disk.fail = lambda operation, path: reads.append(path) if operation == "pread" and path.suffix == ".log" else None
    log = PartitionLog.open(DIRECTORY, config, files=disk, clean=True)
    assert set(reads) <= {_segments(disk)[-1]}
    assert (log.log_end_offset, log.recovery_point, log.recovery.checked_batches) == (30, 30, 0)


def test_unclean_open_checks_from_the_segment_of_the_recovery_point(disk, config, closed):
    base = int(_segments(disk)[2].stem)
    log = _open(disk, config, recovery_point=base + 1)
    assert log.recovery.checked_segments == len(_segments(disk)) - 2
    assert log.recovery_point == base + 1


@pytest.mark.parametrize("position", [6, 8, 16, 17, 22, 61, 100])
def test_changed_byte_ends_the_log_before_its_batch(disk, config, closed, position):
    victim = _segments(disk)[1]
    disk.flip_bit(victim, position, bit=6)
    removed = sorted(_segments(disk)[2:], reverse=True)
    log = _open(disk, config, recovery_point=0)
    assert log.log_end_offset == int(victim.stem)
    assert log.recovery.removed_segments == [path.name for path in removed]
    assert victim.name in (log.recovery.fault or "")
    assert log.latest_epoch <= 2


def test_recovery_says_when_flushed_records_were_lost(disk, config, closed, caplog):
    disk.flip_bit(_segments(disk)[-1], 70)
    log = _open(disk, config, recovery_point=30)
    assert log.recovery.is_below_recovery_point
    assert "ERROR" in {record.levelname for record in caplog.records}


def test_gap_behind_a_segment_without_index_files_is_a_tail_that_was_lost(disk, config, closed):
    names = _segments(disk)
    disk.remove(names[1])
    for suffix in (".index", ".timeindex"):
        disk.remove(names[0].with_suffix(suffix))
    log = _open(disk, config, recovery_point=0)
    assert log.log_end_offset == int(names[1].stem)
    assert log.segment_count == 1
    assert log.recovery.removed_segments == [path.name for path in reversed(names[2:])]


def test_gap_behind_a_segment_with_index_files_is_kept(disk, config, closed):
    names = _segments(disk)
    disk.remove(names[1])
    log = _open(disk, config, recovery_point=0)
    assert (log.log_end_offset, log.recovery.fault) == (30, None)
    first, behind = int(names[1].stem), int(names[2].stem)
    assert parse_header(log.read(first, 1, 30)).base_offset == behind


def test_offset_that_was_changed_upwards_ends_the_log_before_its_batch(disk, config, batch_of):
    log = PartitionLog.open(DIRECTORY, dataclasses.replace(config, segment_bytes=10_000), files=disk)
    positions = []
    for _ in range(6):
        positions.append(log.size_in_bytes)
        log.append_as_leader(batch_of(b"x" * 40, b"y" * 40), 0, now_ms=0)
    log.close()
    disk.flip_bit(_segments(disk)[0], positions[3] + 6, bit=6)
    log = _open(disk, config, recovery_point=0)
    assert (log.log_end_offset, log.recovery.checked_batches) == (6, 3)
    assert "behind a gap" in (log.recovery.fault or "")


def test_clean_open_of_a_torn_tail_recovers(disk, config, closed):
    tail = _segments(disk)[-1]
    disk.write_bytes(tail, disk.read_bytes(tail) + b"\0" * 70)
    log = _open(disk, config, clean=True, recovery_point=30)
    assert (log.log_end_offset, log.recovery.truncated_bytes) == (30, 70)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd size", "zeros", "beyond", "shifted"])
def test_index_is_rebuilt_when_it_is_missing_or_damaged(disk, config, closed, batch_of, clean, suffix, damage):
    good = {path: disk.read_bytes(path) for path in disk.paths() if path.suffix == suffix}
    for path, data in good.items():
        if damage == "missing":
            disk.remove(path)
        else:
            worse = {"odd size": data + b"\1", "zeros": data + bytes(24), "beyond": data + b"\x7f" * 24}
            shifted = bytes([*data[:7], data[7] ^ 3, *data[8:]]) if data else b""
            disk.write_bytes(path, worse.get(damage, shifted))
    log = PartitionLog.open(DIRECTORY, config, files=disk, clean=clean, recovery_point=30)
    for offset in range(30):
        assert log.read(offset, 1, 30)
    assert find_by_timestamp(log, 7).offset == 14 - 1
    assert log.append_as_leader(batch_of(b"z"), 2, now_ms=0).first_offset == 30


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"garbage", b"0\n5\n0 0\n", b"0\n2\n1 5\n0 9\n", b"0\n1\n0 x\n"])
def test_epoch_checkpoint_is_rebuilt_when_it_is_missing_or_damaged(disk, config, closed, clean, content):
    disk.remove(EPOCHS)
    if content is not None:
        disk.write_bytes(EPOCHS, content)
    log = _open(disk, config, clean=clean, recovery_point=30)
    assert [(entry.epoch, entry.start_offset) for entry in log.epoch_entries] == [(0, 0), (1, 10), (2, 20)]
    assert disk.read_bytes(EPOCHS) == b"0\n3\n0 0\n1 10\n2 20\n"


def test_epochs_beyond_the_log_end_are_cut_on_open(disk, config, closed):
    disk.write_bytes(EPOCHS, b"0\n4\n0 0\n1 10\n2 20\n9 30\n")
    assert _open(disk, config, clean=True).latest_epoch == 2


def test_leftovers_are_removed_on_open(disk, config, closed):
    disk.write_bytes(DIRECTORY / "leader-epoch-checkpoint.tmp", b"0")
    disk.write_bytes(DIRECTORY / segment_name(99, ".index"), b"0")
    _open(disk, config, clean=True)
    assert DIRECTORY / "leader-epoch-checkpoint.tmp" not in disk.paths()
    assert DIRECTORY / segment_name(99, ".index") not in disk.paths()


def test_larger_index_interval_after_a_restart_keeps_lookups_right(disk, config, closed):
    log = _open(disk, dataclasses.replace(config, index_interval_bytes=10_000), recovery_point=0)
    assert [log.read(offset, 1, 30)[:8] for offset in range(0, 30, 2)] == [
        o.to_bytes(8, "big") for o in range(0, 30, 2)
    ]


def test_stale_recovery_point_after_a_truncation_hides_no_torn_segment(disk, config, batch_of):
    """The checkpoint still has the recovery point from before the truncation when the machine crashes."""
    for seed in range(60):
        disk = type(disk)()
        log = PartitionLog.open(DIRECTORY, config, files=disk)
        for _ in range(12):
            log.append_as_leader(batch_of(b"x" * 100), 0, now_ms=0)
        stale = log.flush()
        log.truncate_to(1)
        for _ in range(15):
            log.append_as_leader(batch_of(b"y" * 100), 1, now_ms=0)
        disk.crash(random.Random(seed))
        assert _open(disk, config, recovery_point=stale).log_end_offset >= 1


def test_segments_that_a_truncation_removed_do_not_come_back(disk, config, batch_of):
    for seed in range(20):
        disk = type(disk)()
        log = PartitionLog.open(DIRECTORY, config, files=disk)
        for _ in range(9):
            log.append_as_leader(batch_of(b"x" * 100), 0, now_ms=0)
        log.flush()
        boundary = int(_segments(disk)[1].stem)
        log.truncate_to(boundary)
        disk.crash(random.Random(seed))
        assert _open(disk, config, recovery_point=boundary).log_end_offset == boundary


def test_index_entry_that_names_a_later_batch_is_not_believed(disk, config, closed):
    index = next(path for path in disk.paths() if path.suffix == ".index")
    log = PartitionLog.open(DIRECTORY, config, files=disk, clean=True)
    batches = [(header.last_offset, position) for position, header in log.sealed_segments()[0].headers()]
    (first_offset, _), (_, second_position) = batches[0], batches[1]
    disk.write_bytes(index, struct.pack(">ii", first_offset, second_position))
    log = PartitionLog.open(DIRECTORY, config, files=disk, clean=True)
    assert parse_header(log.read(first_offset, 1, 30)).last_offset == first_offset
