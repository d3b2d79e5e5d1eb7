"""Every step of the log's actions on the disk, each ended by a kill of the process and by crashes of the machine.

What is found afterwards is the log before the action, after it, or on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from log_batches import produced_batch, replicated_batch
from log_model import LogState, ModelBatch, content, find_state, segment_bases
from memory_disk import MemoryFiles, crash_at_every_step

from tidelog_foundation.ids import BrokerEpoch, BrokerId, TopicId
from tidelog_node.log import LogConfig, LogDirectory, PartitionLog
from tidelog_node.log.directory.offset_checkpoint_file import read_offsets, write_offsets
from tidelog_node.log.segments.segment import Segment

DIRECTORY = Path("/data/topic-0")
CONFIG = LogConfig(
    segment_bytes=400, index_interval_bytes=100, segment_index_bytes=240, max_message_bytes=390, file_delete_delay_ms=10
)
KEPT_CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)
TOPIC_ID = TopicId(bytes(range(16)))


def _open(disk: MemoryFiles, recovery_point: int = 0, log_start_offset: int = 0, now_ms: int = 0) -> PartitionLog:
    return PartitionLog.open(
        DIRECTORY, CONFIG, files=disk, recovery_point=recovery_point, log_start_offset=log_start_offset, now_ms=now_ms
    )


def _batches(count: int, first: int = 0, epoch: int = 0) -> list[bytes]:
    """Batches of two records, as the leader has them; the third ones are of an idempotent producer."""
    found = []
    for number in range(first, first + count):
        producer = (7, 0, number // 3 * 2) if number % 3 == 2 else (-1, -1, -1)
        values = (b"%d" % number, b"x" * 40)
        found.append(replicated_batch(2 * number, epoch, *values, timestamp_ms=number, producer=producer))
    return found


def _filled(disk: MemoryFiles, count: int = 12, *, is_flushed: bool = True) -> tuple[PartitionLog, LogState]:
    log = _open(disk)
    batches = _batches(count)
    log.append_as_follower(b"".join(batches))
    if is_flushed:
        log.flush()
    return log, LogState(0, 0).append(batches)


def _verify(
    disk: MemoryFiles,
    candidates: Iterable[LogState],
    starts: range,
    ends: range,
    recovery_point: int = 0,
    log_start_offset: int = 0,
) -> PartitionLog:
    """Open the log: it is one of the candidates, can be written and read, and a second opening finds the same."""
    log = _open(disk, recovery_point, log_start_offset)
    state = find_state(log, candidates, starts, ends)
    log.check_invariants()
    _assert_newest_is_recognised(log, state)
    log.append_as_leader(produced_batch(b"next", timestamp_ms=99), 5, now_ms=99)
    log.close()
    again = PartitionLog.open(DIRECTORY, CONFIG, files=disk, clean=True, log_start_offset=log.log_start_offset)
    assert content(again)[:-1] == [batch.data for batch in state.visible]
    assert again.log_end_offset == state.end + 1
    again.close()
    left = [path for path in disk.paths() if path.parent == DIRECTORY]
    assert not [path for path in left if path.suffix in (".cleaned", ".swap", ".tmp")]
    return log


def _assert_newest_is_recognised(log: PartitionLog, state: LogState) -> None:
    known = state.batches_of(7)
    if known:
        header = known[-1].header
        values = (known[-1].records[0].value, known[-1].records[1].value)
        again = produced_batch(*values, timestamp_ms=header.max_timestamp - 1, producer=(7, 0, header.base_sequence))
        info = log.append_as_leader(again, 5, now_ms=99)
        assert info.is_duplicate
        assert info.first_offset == header.base_offset


@pytest.mark.parametrize("is_flushed", [True, False])
def test_crash_of_appends_and_rolls_loses_nothing_that_was_flushed(is_flushed):
    flushed: list[int] = []

    def prepare(disk):
        flushed[:] = [12 if is_flushed else 0]
        return _filled(disk, 6, is_flushed=is_flushed)

    def act(disk, prepared):
        log, _ = prepared
        for number, batch in enumerate(_batches(9, first=6, epoch=1)):
            log.append_as_follower(batch)
            if number == 5:
                flushed[:] = [log.flush()]

    def verify(disk, prepared, is_done):
        after = prepared[1].append(_batches(9, first=6, epoch=1))
        _verify(disk, [after], range(1), range(flushed[0], after.end + 1))

    assert crash_at_every_step(prepare, act, verify, seeds=2) > 30


def test_crash_of_a_close_loses_nothing_that_was_flushed():
    def act(disk, prepared):
        prepared[0].close()

    def verify(disk, prepared, is_done):
        state = prepared[1]
        _verify(disk, [state], range(1), range(state.end if is_done else 0, state.end + 1))

    crash_at_every_step(lambda disk: _filled(disk, is_flushed=False), act, verify)


def test_crash_of_a_stop_leaves_a_marker_only_when_all_is_on_the_disk():
    def open_directory(disk):
        return LogDirectory.open(Path("/data"), cluster_id="alpha", node_id=BrokerId(1), files=disk)

    def prepare(disk):
        directory = open_directory(disk)
        log = directory.open_log("topic", 0, TOPIC_ID, CONFIG)
        log.append_as_follower(b"".join(_batches(8)))
        return directory, log

    def act(disk, prepared):
        directory, log = prepared
        log.close()
        directory.recovery_points.replace({("topic", 0): log.recovery_point})
        directory.close(clean=True, broker_epoch=BrokerEpoch(4))

    def verify(disk, prepared, is_done):
        directory = open_directory(disk)
        is_clean = directory.clean_shutdown_epoch is not None
        assert is_clean or not is_done
        state = LogState(0, 0).append(_batches(8))
        if not directory.partitions():
            return
        log = directory.open_log("topic", 0, TOPIC_ID, CONFIG)
        find_state(log, [state], range(1), range(state.end if is_clean else 0, state.end + 1))
        log.check_invariants()

    crash_at_every_step(prepare, act, verify)


def test_crash_of_retention_leaves_a_log_that_begins_at_one_of_its_segments():
    def prepare(disk):
        log, state = _filled(disk)
        return log, state, segment_bases(log)

    def act(disk, prepared):
        log, state, bases = prepared
        log.config = LogConfig(segment_bytes=400, retention_ms=5, file_delete_delay_ms=10)
        assert log.delete_expired(now_ms=13, high_watermark=state.end)
        assert log.log_start_offset in bases[1:]
        log.remove_deleted_files(now_ms=100)

    def verify(disk, prepared, is_done):
        log, state, bases = prepared
        found = _open(disk)
        assert found.log_start_offset in {*bases, log.log_start_offset}
        found.close()
        # The first opening saw what the crash left; it must not change what a second one sees.
        _verify(
            disk, [state], range(found.log_start_offset, found.log_start_offset + 1), range(state.end, state.end + 1)
        )
        disk.now_ms = 1_000_000
        _open(disk, now_ms=1_000_000).remove_deleted_files(now_ms=1_000_000)
        assert not [path for path in disk.paths() if path.suffix == ".deleted"]

    crash_at_every_step(prepare, act, verify)


def test_crash_of_retention_of_everything_keeps_the_end():
    def act(disk, prepared):
        log, state = prepared
        log.config = LogConfig(segment_bytes=400, retention_ms=1)
        log.delete_expired(now_ms=1_000_000, high_watermark=state.end)
        assert (log.log_start_offset, log.log_end_offset) == (state.end, state.end)

    def verify(disk, prepared, is_done):
        state = prepared[1]
        _verify(disk, [state], range(state.end + 1), range(state.end, state.end + 1), recovery_point=state.end)

    crash_at_every_step(_filled, act, verify)


def test_log_start_is_never_below_its_checkpoint_after_a_crash():
    checkpoint = Path("/data/log-start-offset-checkpoint")
    key = ("topic", 0)

    def act(disk, prepared):
        log, state = prepared
        log.advance_log_start_offset(9)
        write_offsets(disk, checkpoint, {key: 9})
        log.delete_expired(now_ms=0, high_watermark=state.end)
        log.advance_log_start_offset(17)
        log.delete_expired(now_ms=0, high_watermark=state.end)
        write_offsets(disk, checkpoint, {key: 17})

    def verify(disk, prepared, is_done):
        state = prepared[1]
        start = read_offsets(disk, checkpoint).get(key, 0)
        assert start in ((17,) if is_done else (0, 9, 17))
        found = _open(disk, log_start_offset=start)
        assert start <= found.log_start_offset <= 17
        found.close()
        ends = range(state.end, state.end + 1)
        _verify(disk, [state], range(start, 18), ends, log_start_offset=start)

    crash_at_every_step(_filled, act, verify)


def _compact(disk: MemoryFiles, log: PartitionLog, removed: set[int]) -> tuple[bool, int]:
    """Replace all sealed segments but the last by one without some batches."""
    sources = log.sealed_segments()[:-1]
    held = [ModelBatch(data) for data in content(log)]
    kept = [b for b in held if b.base < sources[-1].next_offset and b.base not in removed]
    cleaned = Segment.create(disk, DIRECTORY, sources[0].base_offset, CONFIG, suffix=".cleaned")
    if kept:
        cleaned.append(b"".join(batch.data for batch in kept), [batch.header for batch in kept])
    cleaned.indexes.save()
    cleaned.fsync()
    return log.replace_segments(cleaned, sources), len(sources)


@pytest.mark.parametrize("removed", [{0, 6}, {2, 8}, {0, 2, 6, 8}], ids=str)
def test_crash_of_a_swap_of_segments_leaves_the_old_or_the_new_ones(removed):
    def prepare(disk):
        log, state = _filled(disk)
        return log, state, segment_bases(log)

    def act(disk, prepared):
        log, _, bases = prepared
        is_replaced, count = _compact(disk, log, removed)
        assert is_replaced
        assert count > 1
        assert log.segment_count == len(bases) - count + 1
        log.remove_deleted_files(now_ms=1_000)

    def verify(disk, prepared, is_done):
        _, before, bases = prepared
        after = before.without({batch for batch in before.batches if batch.base in removed})
        between = [
            before.without({b for b in before.batches if b.base in removed and b.base < base}) for base in bases[1:]
        ]
        candidates = [after] if is_done else [after, before, *between]
        _verify(disk, candidates, range(1), range(before.end, before.end + 1), recovery_point=before.end)

    crash_at_every_step(prepare, act, verify, seeds=2)


def test_crash_of_a_swap_for_an_empty_segment_leaves_the_old_or_the_new_one():
    plain = [batch.base for batch in map(ModelBatch, _batches(12)) if batch.header.producer_id < 0]

    def act(disk, log):
        sealed = log.sealed_segments()[0]
        cleaned = Segment.create(disk, DIRECTORY, sealed.base_offset, CONFIG, suffix=".cleaned")
        cleaned.indexes.save()
        cleaned.fsync()
        assert log.replace_segments(cleaned, [sealed])

    def prepare(disk):
        log = _open(disk)
        log.append_as_follower(b"".join(_plain_batches()))
        log.flush()
        assert plain
        return log

    def verify(disk, log, is_done):
        before = LogState(0, 0).append(_plain_batches())
        first = [b for b in before.batches if b.base < 2 * 3]
        after = before.without(set(first))
        _verify(disk, [after] if is_done else [after, before], range(1), range(before.end, before.end + 1))

    crash_at_every_step(prepare, act, verify)


@pytest.mark.parametrize("kept", [0, 2])
def test_gap_that_compaction_left_survives_any_number_of_kills_without_a_flush(disk, kept):
    log = _open(disk)
    batches = _plain_batches()
    log.append_as_follower(b"".join(batches))
    log.flush()
    source = log.sealed_segments()[1]
    cleaned = Segment.create(disk, DIRECTORY, source.base_offset, CONFIG, suffix=".cleaned")
    state = LogState(0, 0).append(batches)
    held = [b for b in state.batches if source.base_offset <= b.base < source.next_offset]
    if kept:
        cleaned.append(b"".join(b.data for b in held[:kept]), [b.header for b in held[:kept]])
    cleaned.indexes.save()
    cleaned.fsync()
    assert log.replace_segments(cleaned, [source])
    after = state.without(set(held[kept:]))
    for _ in range(3):
        disk.kill()
        find_state(_open(disk), [after], range(1), range(state.end, state.end + 1))


def _plain_batches() -> list[bytes]:
    return [replicated_batch(2 * n, 0, b"%d" % n, b"x" * 40, timestamp_ms=n) for n in range(8)]


@pytest.mark.parametrize("offset", [5, 12, 23])
def test_crash_of_a_truncation_cuts_there_or_later_and_nothing_comes_back(offset):
    def act(disk, prepared):
        prepared[0].truncate_to(offset)

    def verify(disk, prepared, is_done):
        before = prepared[1]
        after = before.truncate(offset)
        ends = range(after.lower_end, after.end + 1) if is_done else range(after.lower_end, before.end + 1)
        _verify(disk, [before], range(1), ends, recovery_point=before.end)

    crash_at_every_step(_filled, act, verify)


@pytest.mark.parametrize("offset", [0, 10, 100])
def test_crash_of_a_restart_at_another_offset_leaves_a_beginning_or_an_empty_log(offset):
    def act(disk, prepared):
        prepared[0].truncate_fully_and_start_at(offset)

    def verify(disk, prepared, is_done):
        before = prepared[1]
        log = _open(disk, recovery_point=before.end)
        if log.log_start_offset == log.log_end_offset:
            assert log.log_end_offset in ((offset,) if is_done else (0, offset))
            return
        assert not is_done
        find_state(log, [before], range(1), range(before.end + 1))
        log.check_invariants()

    crash_at_every_step(_filled, act, verify)


def test_crash_of_a_deletion_leaves_the_whole_partition_or_none_of_it():
    def open_directory(disk):
        return LogDirectory.open(Path("/data"), cluster_id="alpha", node_id=BrokerId(1), files=disk)

    def prepare(disk):
        directory = open_directory(disk)
        log = directory.open_log("topic", 0, TOPIC_ID, CONFIG)
        log.append_as_follower(b"".join(_batches(8)))
        log.flush()
        return directory, log

    def act(disk, prepared):
        prepared[1].delete()

    def verify(disk, prepared, is_done):
        directory = open_directory(disk)
        if directory.partitions():
            assert not is_done
            log = directory.open_log("topic", 0, TOPIC_ID, CONFIG)
            assert content(log) == _batches(8)
        else:
            assert not [path for path in disk.paths() if "topic" in str(path)]

    crash_at_every_step(prepare, act, verify)


@pytest.mark.parametrize("write", [write_offsets], ids=["offsets"])
def test_crash_of_a_checkpoint_leaves_the_old_or_the_new_one(write: Callable[..., None]):
    path = Path("/data/recovery-point-offset-checkpoint")
    old, new = {("a", 0): 1, ("b", 1): 2}, {("a", 0): 5, ("c", 9): 2**40}

    def prepare(disk):
        disk.mkdir(path.parent)
        write(disk, path, old)

    def verify(disk, _, is_done):
        assert read_offsets(disk, path) in ([new] if is_done else [old, new])

    crash_at_every_step(prepare, lambda disk, _: write(disk, path, new), verify, seeds=10)
