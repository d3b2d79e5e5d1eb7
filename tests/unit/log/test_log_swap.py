"""A cleaned segment in the place of others: what the log does, and what a crash leaves of it and of its repair."""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path

import pytest
from memory_disk import MachineCrashed, MemoryFiles, failing, no_fault

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import iter_headers, parse_header
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction

DIRECTORY = Path("/data/topic-0")
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100, segment_index_bytes=1024, file_delete_delay_ms=0)
COUNT = 16


def _log(disk, replicated, count=COUNT):
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk)
    for base in range(count):
        log.append_as_follower(replicated(base, 0, b"x" * 60, timestamp_ms=base))
    log.flush()
    assert [s.base_offset for s in log.sealed_segments()] == [0, 3, 6, 9, 12]
    return log


def _clean(disk, sources, kept, aborted=()):
    """Write the batches of ``kept`` into a cleaned segment, as the cleaner does."""
    segment = Segment.create(disk, DIRECTORY, sources[0].base_offset, CONFIG, ".cleaned")
    for source in sources:
        for position, header in source.headers():
            if header.base_offset in kept:
                segment.append(source.read_at(position, header.size_in_bytes), [header])
    for transaction in aborted:
        segment.transaction_index.append(transaction)
    segment.fsync()
    segment.indexes.save()
    return segment


def _bases(log):
    found, offset = [], log.log_start_offset
    while chunk := log.read(offset, 10_000, log.log_end_offset):
        found += [header.base_offset for _, header in iter_headers(chunk)]
        offset = found[-1] + 1
    return found


def _leftovers(disk):
    return [path.name for path in disk.paths() if path.suffix in (".cleaned", ".swap", ".deleted", ".tmp")]


@pytest.mark.parametrize(
    ("first", "last", "kept"), [(0, 2, {0, 4}), (1, 3, {8}), (1, 3, set()), (4, 5, {12, 14}), (0, 5, {5})]
)
def test_cleaned_segment_takes_the_place_of_its_sources(disk, replicated, first, last, kept):
    log = _log(disk, replicated)
    sources = log.sealed_segments()[first:last]
    gone = set(range(sources[0].base_offset, last * 3)) - kept
    assert log.replace_segments(_clean(disk, sources, kept), sources, now_ms=5)
    expected = [base for base in range(COUNT) if base not in gone]
    assert _bases(log) == expected
    log.check_invariants()
    assert (log.segment_count, log.log_end_offset) == (6 - (last - first) + 1, COUNT)
    assert log.remove_deleted_files(5) == 3 * (last - first - 1)
    assert _leftovers(disk) == []
    handles = disk.handle_count
    log.close()
    assert disk.handle_count == handles - log.segment_count
    for clean in (True, False):
        log = PartitionLog.open(DIRECTORY, CONFIG, files=disk, clean=clean)
        assert (_bases(log), log.recovery.fault) == (expected, None)
        log.check_invariants()
        log.close()


def test_cleaned_segment_is_dropped_when_its_sources_are_not_here_any_more(disk, replicated):
    log = _log(disk, replicated)
    sources = log.sealed_segments()[1:3]
    log.truncate_to(7)
    for base in range(7, 12):
        log.append_as_follower(replicated(base, 1, b"other" * 12))
    assert log.sealed_segments()[1] is sources[0]
    assert not log.replace_segments(_clean(disk, sources[:1], {3}), sources)
    assert _leftovers(disk) == []
    assert _bases(log) == list(range(12))


def test_sources_must_be_sealed_and_in_one_run(disk, replicated):
    log = _log(disk, replicated)
    sealed = log.sealed_segments()
    for sources in ((sealed[0], sealed[2]), (sealed[1], sealed[0]), (log._local.segments.active,), ()):
        cleaned = _clean(disk, sources or sealed[:1], {0})
        assert not log.replace_segments(cleaned, sources)
    log.truncate_to(14)
    assert not log.replace_segments(_clean(disk, sealed[3:4], {9}), sealed[3:5])
    assert _leftovers(disk) == []
    assert _bases(log) == list(range(14))


@pytest.mark.parametrize("after", range(8))
def test_swap_that_the_disk_refuses_takes_the_log_offline_and_a_restart_ends_it(disk, replicated, after):
    log = _log(disk, replicated)
    sources = log.sealed_segments()[:2]
    cleaned = _clean(disk, sources, {1})
    disk.fail = failing(errno.EIO, "rename", after=after)
    with pytest.raises(TidelogError, match="Swapping segments"):
        log.replace_segments(cleaned, sources)
    disk.fail = no_fault
    assert log.failure is not None
    disk.kill()
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk, recovery_point=COUNT)
    assert _bases(log) in ([*range(COUNT)], [1, *range(3, COUNT)], [1, *range(6, COUNT)])
    assert _leftovers(disk) == []


def _crashed_swap(seed, replicated, operation, kept, aborted):
    """Return the disk after a crash at an operation of the swap, and whether it came to that."""
    disk = MemoryFiles()
    log = _log(disk, replicated)
    log.sealed_segments()[1].transaction_index.append(AbortedTransaction(7, 3, 4, 5))
    log.sealed_segments()[1].transaction_index.flush()
    sources = log.sealed_segments()[1:4]
    cleaned = _clean(disk, sources, kept, aborted)
    disk.crash_at = disk.operations + operation
    try:
        log.replace_segments(cleaned, sources)
        is_done = True
    except MachineCrashed:
        is_done = False
    disk.kill() if seed is None else disk.crash(random.Random(seed))
    return disk, is_done


@pytest.mark.parametrize("kept", [{4, 9}, {10}, set()], ids=str)
@pytest.mark.parametrize("aborted", [(), (AbortedTransaction(8, 4, 9, 10),)], ids=["none", "one"])
def test_crash_of_a_swap_and_of_its_repair_leaves_batches_and_transactions_together(replicated, kept, aborted):
    """At each step of the swap, and then at each step of the first opening after it."""
    for seed in (None, 1, 2):
        operation, is_done = 0, False
        while not is_done:
            disk, is_done = _crashed_swap(seed, replicated, operation, kept, aborted)
            for repair in range(0, 60, 7):
                again = disk.copy()
                again.fsync_directory(DIRECTORY.parent)
                again.crash_at = again.operations + repair
                with contextlib.suppress(MachineCrashed):
                    PartitionLog.open(DIRECTORY, CONFIG, files=again, recovery_point=COUNT)
                again.kill() if seed is None else again.crash(random.Random(seed))
                _check_swapped(again, kept, aborted, is_done)
            operation += 1


def _check_swapped(disk, kept, aborted, is_done):
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk, recovery_point=COUNT)
    log.check_invariants()
    bases = _bases(log)
    assert [base for base in bases if not 3 <= base < 12] == [0, 1, 2, 12, 13, 14, 15]
    middle = [base for base in bases if 3 <= base < 12]
    is_swapped = is_done or middle != [*range(3, 12)]
    left = {base for base in range(3, 12) if base >= 6} if is_swapped else set()
    assert not is_swapped or set(middle) - left <= kept
    assert not is_done or set(middle) == kept
    found = [entry.producer_id for entry in log.sealed_segments()[1].transaction_index.entries]
    assert found == ([entry.producer_id for entry in aborted] if is_swapped else [7])
    assert _leftovers(disk) == []
    log.close()


def test_uncommitted_files_are_removed_and_a_committed_swap_is_completed(disk, replicated):
    log = _log(disk, replicated)
    sources = log.sealed_segments()[:2]
    cleaned = _clean(disk, sources, {1, 4})
    paths = {suffix: cleaned.file_path(suffix) for suffix in (".log", ".index", ".timeindex")}
    disk.kill()
    for path in list(paths.values())[1:]:
        disk.rename(path, path.with_suffix(".swap"))
    uncommitted = disk.copy()
    log = PartitionLog.open(DIRECTORY, CONFIG, files=uncommitted, recovery_point=COUNT)
    assert _bases(log) == list(range(COUNT))
    assert _leftovers(uncommitted) == []
    disk.rename(paths[".log"], paths[".log"].with_suffix(".swap"))
    log = PartitionLog.open(DIRECTORY, CONFIG, files=disk, recovery_point=COUNT)
    assert _bases(log) == [1, 4, *range(6, COUNT)]
    assert _leftovers(disk) == []
    assert parse_header(log.read(0, 1, COUNT)).base_offset == 1


def test_age_of_the_cleaned_segment_is_that_of_its_newest_source(disk, replicated):
    log = _log(disk, replicated)
    sources = log.sealed_segments()[:2]
    sources[0].set_modified_ms(10)
    sources[1].set_modified_ms(20)
    log.replace_segments(_clean(disk, sources, {1}), sources)
    assert log.sealed_segments()[0].last_modified_ms == 20
