"""A log and its cleaner together: whole cleanings, several passes, those that are given up, crashes, full disks."""

from __future__ import annotations

import pytest
from cleaned_log import DIRECTORY, KEY, RETENTION_MS, CleanedLog, make_cleaner, with_segments_of
from memory_disk import MemoryFiles

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records.control import ControlType
from tidelog_node.log.cleaner.source import CleaningAborted
from tidelog_node.log.segments.transaction_index import AbortedTransaction

pytestmark = pytest.mark.usefixtures("engine")


def filled(count: int = 60, keys: int = 7, disk: MemoryFiles | None = None) -> CleanedLog:
    """A log of several segments in which each key was written many times, the last one as a tombstone at the end."""
    log = CleanedLog(disk or MemoryFiles())
    for index in range(count):
        pairs = [(b"k%d" % ((index + step) % keys), b"v%d" % index * 20) for step in range(2)]
        log.append(pairs, compression=("none", "lz4")[index % 2])
    log.append([(b"k0", None)])
    log.log.roll(log.now_ms)
    log.append([(b"active", b"1")])
    return log


def visible_keys(log: CleanedLog) -> list[bytes | None]:
    return [record.key for record in log.visible()]


def cleaned_files(log: CleanedLog) -> list[str]:
    return [path.name for path in log.disk.paths() if "cleaned" in path.name or "swap" in path.name]


def test_cleaning_keeps_the_last_record_of_each_key() -> None:
    log = filled()
    end_offset = log.log.active_base_offset
    cleaning = log.clean()
    assert cleaning is not None
    log.check()
    assert cleaning.end_offset == end_offset == log.checkpoint.get(KEY)
    assert sorted(filter(None, visible_keys(log))) == [b"active", *(b"k%d" % key for key in range(7))]
    statistics = cleaning.statistics
    assert (statistics.records_read, statistics.records_written, statistics.keys) == (121, 7, 7)
    assert statistics.bytes_read == statistics.indexed_bytes > statistics.bytes_written
    assert cleaned_files(log) == []
    assert log.clean() is None


def test_cleaning_again_joins_small_segments_and_drops_the_tombstone_after_its_time() -> None:
    log = filled()
    log.clean()
    log.now_ms += RETENTION_MS - 1
    log.append([(b"other", b"2")])
    log.log.roll(log.now_ms)
    log.clean()
    log.check()
    assert b"k0" in visible_keys(log)
    log.now_ms += 1
    log.append([(b"other", b"3")])
    log.log.roll(log.now_ms)
    log.clean()
    log.check()
    assert b"k0" not in visible_keys(log)
    assert log.log.segment_count <= 3


def test_cleaning_ends_where_the_map_is_full_and_goes_on_from_there() -> None:
    log = filled(keys=40)
    ends = []
    while (cleaning := log.clean(max_keys=9)) is not None:
        ends.append(cleaning.end_offset)
        log.check()
        assert cleaning.statistics.map_fill <= 1.0
    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert ends[-1] == log.log.active_base_offset
    assert len(visible_keys(log)) == len(set(visible_keys(log)))


def test_cleaning_goes_on_with_room_for_one_key_and_is_refused_without() -> None:
    log = filled(count=5, keys=3)
    with pytest.raises(TidelogError) as caught:
        log.clean(max_keys=0)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    while log.clean(max_keys=1) is not None:
        log.check()
    assert len(visible_keys(log)) == 4


def test_cleaning_looks_at_nothing_from_an_open_transaction_on() -> None:
    log = filled(count=10)
    log.append([(b"k1", b"open")], producer_id=5)
    first_unstable = log.log.log_end_offset - 1
    for index in range(20):
        log.append([(b"k1", b"later %d" % index * 10)])
    log.log.roll(log.now_ms)
    cleaning = log.clean()
    assert cleaning is not None
    assert cleaning.end_offset <= first_unstable
    log.check()
    log.end_transaction(5, ControlType.COMMIT)
    log.log.roll(log.now_ms)
    log.clean()
    log.check()


def test_cleaning_drops_an_aborted_transaction_then_its_index_entry_then_its_marker() -> None:
    log = CleanedLog()
    log.append([(b"a", b"1")])
    log.append([(b"a", b"aborted")], producer_id=5)
    log.append([(b"b", b"1")])
    log.end_transaction(5, ControlType.ABORT)
    log.append([(b"a", b"committed")], producer_id=5)
    log.end_transaction(5, ControlType.COMMIT)
    aborted = [AbortedTransaction(5, 1, 3, 4)]
    controls = []
    for round_ in range(4):
        log.log.roll(log.now_ms)
        log.append([(b"round", b"%d" % round_)])
        assert log.log.aborted_transactions(0, 100) == aborted, round_
        log.clean()
        log.check()
        log.now_ms += RETENTION_MS
        controls.append([offset for offset in (3, 5) if has_control(log, offset)])
        if round_ == 1:
            aborted = []
    assert visible_keys(log) == [b"b", b"a", b"round", b"round"]
    assert controls == [[3, 5], [3, 5], [5], [5]]


def has_control(log: CleanedLog, offset: int) -> bool:
    return any(int.from_bytes(batch[:8], "big") == offset and batch[22] & 0x20 for batch in log.batches())


def test_cleaned_log_gives_a_producer_its_last_sequence_back_after_a_restart() -> None:
    log = CleanedLog()
    for index in range(3):
        log.append([(b"a", b"%d" % index)], producer_id=5)
        log.end_transaction(5, ControlType.COMMIT)
    log.append([(b"a", b"last")])
    log.log.roll(log.now_ms)
    log.clean()
    log.check()
    entry = next(producer for producer in log.log.active_producers() if producer.producer_id == 5)
    log.disk.kill()
    for path in [path for path in log.disk.paths() if path.suffix == ".snapshot"]:
        log.disk.remove(path)
    log.open(is_clean=False)
    restored = next(producer for producer in log.log.active_producers() if producer.producer_id == 5)
    assert (restored.last_sequence, restored.last_offset) == (entry.last_sequence, entry.last_offset) == (2, 4)


def test_cleaning_of_a_log_whose_first_segments_were_deleted_begins_at_its_start() -> None:
    log = filled()
    log.log.advance_log_start_offset(50)
    log.log.delete_expired(log.now_ms, log.log.log_end_offset)
    log.written = [written for written in log.written if written.record.offset >= 50]
    log.clean()
    log.check()


def test_cleaning_is_given_up_when_its_sources_are_deleted_meanwhile() -> None:
    log = filled()
    log.log.flush()
    task = log.task()
    assert task is not None
    log.log.advance_log_start_offset(task.segments[1].base_offset)
    log.log.delete_expired(log.now_ms, log.log.log_end_offset)
    with pytest.raises(CleaningAborted):
        make_cleaner(log.disk, 100).clean(task, log.now_ms, log.replace)
    assert cleaned_files(log) == []
    log.written = [written for written in log.written if written.record.offset >= log.log.log_start_offset]
    log.check()


def test_cleaning_is_given_up_between_two_reads_when_it_is_told_to() -> None:
    log = filled()
    log.log.flush()
    task = log.task()
    assert task is not None
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > 25:
            raise CleaningAborted("stopped")

    handles = log.disk.handle_count
    with pytest.raises(CleaningAborted, match="stopped"):
        make_cleaner(log.disk, 100).clean(task, log.now_ms, log.replace, check)
    assert cleaned_files(log) == []
    assert log.disk.handle_count <= handles
    log.check()
    log.clean()
    log.check()


def test_cleaning_refuses_a_batch_that_has_changed_on_the_disk() -> None:
    log = filled()
    log.log.flush()
    path = log.log.sealed_segments()[2].path
    log.disk.flip_bit(path, log.disk.size_of(path) - 3)
    with pytest.raises(CorruptRecordError):
        log.clean()
    assert cleaned_files(log) == []


def test_cleaned_segment_keeps_the_time_of_its_newest_source() -> None:
    log = filled()
    log.log.flush()
    task = log.task()
    assert task is not None
    newest = task.segments[-1].modified_ms
    log.disk.now_ms = 10**15
    log.clean()
    assert log.log.sealed_segments()[-1].last_modified_ms == newest


@pytest.mark.parametrize("segment_bytes", [300, 2000, 100_000])
def test_cleaning_leaves_a_log_that_a_full_disk_interrupted_as_it_was(segment_bytes: int) -> None:
    failures = []
    for free in (0, 1, 100, 1000, 2500, 10_000):
        log = CleanedLog(config=with_segments_of(segment_bytes))
        for index in range(40):
            log.append([(b"k%d" % (index % 39), b"v" * 60)])
        log.log.roll(log.now_ms)
        log.log.flush()
        log.disk.capacity = free
        try:
            log.clean()
        except TidelogError as error:
            failures.append(error)
        log.disk.capacity = None
        assert cleaned_files(log) == []
        log.check()
        log.clean()
        log.check()
    assert 3 <= len(failures) < 6
    for failure in failures:
        assert failure.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left on device" in failure.message


def test_cleaner_writes_no_file_outside_of_the_partition() -> None:
    log = filled()
    log.clean()
    outside = [path for path in log.disk.paths() if path.parent != DIRECTORY]
    assert [path.name for path in outside] == ["cleaner-offset-checkpoint"]
