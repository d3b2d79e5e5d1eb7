"""Idempotent and transactional batches in a log: duplicates, snapshots, recovery, truncation, stable offsets."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from log_batches import produced_batch, replicated_batch
from memory_disk import failing, no_fault

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import ControlType, RecordBatchBuilder, assign_offsets, control_batch
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.producers.snapshots import snapshot_offset

DIRECTORY = Path("/data/topic-0")
CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=100, segment_index_bytes=1024)


def _open(disk, **options):
    return PartitionLog.open(DIRECTORY, CONFIG, files=disk, **options)


def _produced(sequence, producer_id=7, epoch=0, values=(b"a", b"b")):
    return produced_batch(*values, timestamp_ms=1000 + sequence, producer=(producer_id, epoch, sequence))


def _append(log, sequence, **changes):
    return log.append_as_leader(_produced(sequence, **changes), 0, now_ms=5000)


def _snapshots(disk):
    return [offset for path in disk.paths() if (offset := snapshot_offset(path.name)) is not None]


def _transactional(base, producer_id, count=2, sequence=0):
    builder = RecordBatchBuilder()
    for index in range(count):
        builder.append(b"k%d" % index, b"v" * 30, (), base)
    batch = bytearray(builder.build(producer_id, 0, sequence, is_transactional=True))
    assign_offsets(batch, base, 0)
    return bytes(batch)


def _marker(base, producer_id, kind=ControlType.ABORT):
    batch = bytearray(control_batch(kind, producer_id, 0, 1, base))
    assign_offsets(batch, base, 0)
    return bytes(batch)


def test_duplicate_gets_the_original_offsets_and_is_not_written(disk):
    log = _open(disk)
    first = _append(log, 0)
    _append(log, 2)
    size = log.size_in_bytes
    again = _append(log, 0)
    assert again.is_duplicate
    assert not first.is_duplicate
    assert (again.first_offset, again.last_offset, again.max_timestamp) == (0, 1, 1001)
    assert (log.size_in_bytes, log.log_end_offset) == (size, 4)


def test_duplicate_has_its_time_of_append_again(disk):
    config = LogConfig(message_timestamp_type="LogAppendTime")
    log = PartitionLog.open(DIRECTORY, config, files=disk)
    assert log.append_as_leader(_produced(0), 0, now_ms=5000).log_append_time_ms == 5000
    again = log.append_as_leader(_produced(0), 0, now_ms=9000)
    assert (again.is_duplicate, again.log_append_time_ms) == (True, 5000)


def test_duplicate_is_recognised_after_it_was_compressed(disk):
    log = PartitionLog.open(DIRECTORY, LogConfig(compression_type="zstd"), files=disk)
    log.append_as_leader(_produced(0, values=(b"x" * 200,)), 0, now_ms=5000)
    assert log.append_as_leader(_produced(0, values=(b"x" * 200,)), 0, now_ms=5000).is_duplicate


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sequence": 3}, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ({"sequence": 2, "epoch": 0}, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_batch_that_breaks_the_producer_s_order_is_refused(disk, changes, code):
    log = _open(disk)
    epoch = 1 if code is ErrorCode.INVALID_PRODUCER_EPOCH else 0
    _append(log, 0, epoch=epoch)
    with pytest.raises(TidelogError) as caught:
        _append(log, **changes)
    assert caught.value.code is code
    assert log.log_end_offset == 2


def test_append_that_the_disk_refused_may_be_repeated(disk):
    log = _open(disk)
    _append(log, 0)
    disk.capacity = 10
    with pytest.raises(TidelogError, match="No space left"):
        _append(log, 2)
    disk.capacity = None
    info = _append(log, 2)
    assert (info.is_duplicate, info.first_offset) == (False, 2)


@pytest.mark.parametrize("way", ["clean", "killed", "crashed", "no snapshot", "damaged snapshot"])
def test_producers_are_known_after_a_restart(disk, way):
    log = _open(disk)
    for sequence in range(0, 30, 2):
        _append(log, sequence)
    entries = log.active_producers()
    log.flush()
    assert log.segment_count > 2
    assert _snapshots(disk) == [*(s.base_offset for s in log.sealed_segments()[1:]), log.active_base_offset]
    match way:
        case "killed":
            disk.kill()
        case "crashed":
            disk.crash(random.Random(3))
        case _:
            log.close()
            assert log.log_end_offset in _snapshots(disk)
    for path in [path for path in disk.paths() if path.suffix == ".snapshot"]:
        if way == "no snapshot":
            disk.remove(path)
        elif way == "damaged snapshot":
            disk.flip_bit(path, 12)
    log = _open(disk, clean=way not in ("killed", "crashed"), recovery_point=30)
    found = log.active_producers()
    assert [(e.producer_id, e.last_sequence, e.last_offset) for e in found] == [(7, 29, 29)]
    assert [e.last_sequence for e in entries] == [29]
    assert _append(log, 28).is_duplicate
    assert _append(log, 30).first_offset == 30
    log.check_invariants()


@pytest.mark.parametrize("is_clean", [True, False])
def test_duplicate_has_the_leader_s_time_of_append_on_a_follower_that_started_again(disk, is_clean):
    config = LogConfig(message_timestamp_type="LogAppendTime")
    leader = PartitionLog.open(Path("/data/leader-0"), config, files=disk)
    leader.append_as_leader(_produced(0), 0, now_ms=5000)
    follower = PartitionLog.open(DIRECTORY, config, files=disk)
    follower.append_as_follower(leader.read(0, 10_000, 2), now_ms=5300)
    if is_clean:
        follower.close()
    else:
        disk.kill()
    follower = PartitionLog.open(DIRECTORY, config, files=disk, clean=is_clean, now_ms=6000)
    again = follower.append_as_leader(_produced(0), 0, now_ms=9000)
    assert (again.is_duplicate, again.first_offset, again.log_append_time_ms) == (True, 0, 5000)


@pytest.mark.parametrize("way", ["killed", "truncated"])
def test_producer_of_old_timestamps_does_not_expire_because_its_batches_were_read_again(disk, way):
    log = _open(disk, producer_id_expiration_ms=10_000, now_ms=1_000_000)
    log.append_as_leader(_produced(0), 0, now_ms=1_000_000)
    log.append_as_leader(_produced(2), 0, now_ms=1_100_000)
    if way == "killed":
        disk.kill()
        log = _open(disk, producer_id_expiration_ms=10_000, now_ms=1_100_000)
    else:
        log.truncate_to(2)
    assert log.expire_producers(1_105_000) == 0
    assert log.append_as_leader(_produced(0), 0, now_ms=1_105_000).is_duplicate
    assert log.expire_producers(1_110_000) == 1


def test_producers_are_known_after_all_of_their_records_were_deleted(disk):
    log = _open(disk)
    for sequence in range(0, 40, 2):
        _append(log, sequence)
    log.advance_log_start_offset(40)
    log.roll(6000)
    log.delete_expired(6000, 40)
    assert (log.size_in_bytes, log.log_start_offset) == (0, 40)
    for way in ("open", "closed", "killed"):
        if way == "closed":
            log.close()
        elif way == "killed":
            log.flush()
            disk.kill()
        if way != "open":
            log = _open(disk, clean=way == "closed", log_start_offset=40, recovery_point=40)
        assert _append(log, 38).is_duplicate
        with pytest.raises(TidelogError, match="OUT_OF_ORDER"):
            _append(log, 46)
    assert _append(log, 40).first_offset == 40


def test_sequences_go_on_at_0_also_after_a_restart(disk):
    def append(sequence):
        batch = produced_batch(b"a", b"b", timestamp_ms=1000, producer=(7, 0, sequence))
        return log.append_as_leader(batch, 0, now_ms=5000)

    log = _open(disk)
    append(2**31 - 3)
    append(2**31 - 1)
    log.close()
    log = _open(disk, clean=True)
    assert append(2**31 - 1).is_duplicate
    assert append(2**31 - 3).is_duplicate
    with pytest.raises(TidelogError, match="OUT_OF_ORDER"):
        append(0)
    assert append(1).first_offset == 4


def test_clean_restart_reads_no_batch_for_the_producers(disk):
    log = _open(disk)
    for sequence in range(0, 20, 2):
        _append(log, sequence)
    log.close()
    disk.trace = []
    _open(disk, clean=True)
    read = {path.name for operation, path in disk.trace if operation == "pread" and path.suffix == ".log"}
    assert read <= {f"{log.active_base_offset:020d}.log"}


def test_expired_producers_are_forgotten(disk):
    log = _open(disk, producer_id_expiration_ms=100)
    _append(log, 0)
    assert log.expire_producers(5099) == 0
    assert log.expire_producers(5100) == 1
    assert log.active_producers() == []
    assert not _append(log, 0).is_duplicate


def test_truncation_forgets_what_the_producer_did_there(disk):
    log = _open(disk)
    for sequence in range(0, 20, 2):
        _append(log, sequence)
    log.truncate_to(13)
    assert log.log_end_offset == 12
    assert [entry.last_sequence for entry in log.active_producers()] == [11]
    assert max(_snapshots(disk)) <= 12
    assert _append(log, 10).is_duplicate
    assert _append(log, 12).first_offset == 12
    log.truncate_fully_and_start_at(100)
    assert log.active_producers() == []
    assert _snapshots(disk) == []
    assert _append(log, 4).first_offset == 100


def test_snapshots_of_deleted_segments_go_with_them(disk):
    log = _open(disk)
    for sequence in range(0, 20, 2):
        _append(log, sequence)
    log.advance_log_start_offset(log.active_base_offset)
    log.delete_expired(0, high_watermark=20)
    assert _snapshots(disk) == [log.active_base_offset]


def test_snapshot_that_cannot_be_written_does_not_roll(disk):
    log = _open(disk)
    _append(log, 0)
    disk.fail = failing(errno.EIO, "rename", suffix=".snapshot.tmp")
    with pytest.raises(TidelogError, match="snapshot"):
        log.roll(0)
    disk.fail = no_fault
    assert (log.segment_count, log.failure) == (1, None)
    assert _append(log, 2).first_offset == 2


def _with_transactions(log):
    """Producer 1 aborts 0 to 2, producer 2 commits 3 to 6, producer 1 aborts 7 to 14, producer 3 is open at 12."""
    batches = (
        _transactional(0, 1),
        _marker(2, 1),
        _transactional(3, 2),
        replicated_batch(5, 0, b"plain"),
        _marker(6, 2, ControlType.COMMIT),
        _transactional(7, 1, count=3, sequence=2),
        replicated_batch(10, 0, b"plain" * 40, b"plain"),
        _transactional(12, 3),
        _marker(14, 1),
    )
    for batch in batches:
        log.append_as_follower(batch)
    assert log.log_end_offset == 15
    assert log.segment_count >= 3
    return log


def _aborted(log, start, end):
    return [
        (t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
        for t in log.aborted_transactions(start, end)
    ]


FIRST, SECOND = (1, 0, 2, 3), (1, 7, 14, 12)


@pytest.mark.parametrize("way", ["as it is", "clean", "killed"])
def test_aborted_transactions_and_stable_offsets(disk, way):
    log = _with_transactions(_open(disk))
    log.last_stable_offset(15)
    if way == "clean":
        log.close()
    if way != "as it is":
        disk.kill()
        log = _open(disk, clean=way == "clean")
        log.last_stable_offset(0)
    assert log.last_stable_offset(15) == 12
    assert _aborted(log, 0, 12) == [FIRST, SECOND]
    assert _aborted(log, 0, 7) == [FIRST]
    assert _aborted(log, 3, 7) == []
    assert _aborted(log, 9, 12) == [SECOND]
    names = [path.name for path in disk.paths() if path.suffix == ".txnindex"]
    assert len(names) == 2


def test_last_stable_offset_waits_for_markers_to_be_replicated(disk):
    log = _open(disk)
    log.append_as_follower(_transactional(0, 1))
    log.append_as_follower(_transactional(2, 2))
    assert log.last_stable_offset(4) == 0
    log.append_as_follower(_marker(4, 1))
    assert log.last_stable_offset(4) == 0
    assert log.last_stable_offset(5) == 2
    log.append_as_follower(_marker(5, 2, ControlType.COMMIT))
    assert log.last_stable_offset(6) == 6


def test_truncation_of_a_marker_opens_the_transaction_again(disk):
    log = _with_transactions(_open(disk))
    log.truncate_to(14)
    assert log.last_stable_offset(14) == 7
    assert _aborted(log, 0, 7) == [FIRST]
    log.append_as_follower(_marker(14, 1, ControlType.COMMIT))
    assert log.last_stable_offset(15) == 12
    assert _aborted(log, 7, 12) == []


def test_open_transaction_below_the_log_start_does_not_hold_readers_before_it(disk):
    log = _open(disk)
    log.append_as_follower(_transactional(0, 1))
    log.append_as_follower(replicated_batch(2, 0, b"a", b"b"))
    log.advance_log_start_offset(3)
    assert log.last_stable_offset(4) == 3


def test_torn_transaction_index_is_made_anew_by_recovery(disk):
    log = _with_transactions(_open(disk))
    disk.kill()
    for path in [path for path in disk.paths() if path.suffix == ".txnindex"]:
        disk.write_bytes(path, disk.read_bytes(path)[:20])
    log = _open(disk)
    assert _aborted(log, 0, 12) == [FIRST, SECOND]
