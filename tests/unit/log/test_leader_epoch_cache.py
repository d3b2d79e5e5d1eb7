"""The cases of Kafka's LeaderEpochFileCacheTest that concern assignment, end offsets and truncation."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from memory_disk import failing

from tidelog_foundation.errors import RefreshMetadataError
from tidelog_node.log.epochs import LeaderEpochCache

DIRECTORY = Path("/data/topic-0")


@pytest.fixture
def cache(disk):
    disk.mkdir(DIRECTORY)
    return LeaderEpochCache(disk, DIRECTORY)


def _entries(cache):
    cache.check_invariants()
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


def _fill(cache, *entries):
    for epoch, offset in entries:
        cache.assign(epoch, offset)


def test_end_offset_of_the_latest_epoch_is_the_log_end(cache):
    _fill(cache, (2, 0))
    assert cache.end_offset_for(2, log_end_offset=10) == (2, 10)


def test_end_offset_is_undefined_for_no_epoch_and_for_later_ones(cache):
    assert cache.end_offset_for(0, 0) == (-1, -1)
    _fill(cache, (2, 11), (3, 12))
    assert cache.end_offset_for(-1, 14) == (-1, -1)
    assert cache.end_offset_for(5, 14) == (-1, -1)


def test_end_offset_of_an_epoch_before_all_is_the_start_of_the_first(cache):
    _fill(cache, (5, 11), (6, 12), (7, 13))
    assert cache.end_offset_for(4, 14) == (4, 11)


def test_end_offset_of_an_earlier_epoch_is_the_start_of_the_next(cache):
    _fill(cache, (1, 11), (1, 12), (1, 13), (2, 14), (2, 15), (2, 16))
    assert cache.end_offset_for(1, 17) == (1, 14)


def test_end_offset_of_a_missing_epoch_is_that_of_the_one_before(cache):
    _fill(cache, (0, 10), (2, 13), (4, 17))
    assert cache.end_offset_for(1, 20) == (0, 13)
    assert cache.end_offset_for(2, 20) == (2, 17)
    assert cache.end_offset_for(3, 20) == (2, 17)


def test_assign_keeps_the_first_start_of_an_epoch(cache):
    _fill(cache, (2, 6), (2, 7))
    assert _entries(cache) == [(2, 6)]


def test_assign_replaces_entries_that_are_not_before_it(cache):
    _fill(cache, (1, 5), (3, 7), (4, 9))
    cache.assign(5, 7)
    assert _entries(cache) == [(1, 5), (5, 7)]
    cache.assign(2, 6)
    assert _entries(cache) == [(1, 5), (2, 6)]


def test_assign_goes_on_with_an_epoch_after_a_leader_without_records(cache):
    _fill(cache, (3, 0), (5, 10))
    cache.assign(3, 10)
    assert _entries(cache) == [(3, 0)]


def test_assign_refuses_negative_values(cache):
    for epoch, offset in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            cache.assign(epoch, offset)


@pytest.mark.parametrize(("end", "kept"), [(12, 3), (11, 2), (10, 2), (9, 2), (8, 1), (6, 0), (0, 0)])
def test_truncation_from_the_end_removes_what_starts_there(cache, end, kept):
    entries = [(2, 6), (3, 8), (4, 11)]
    _fill(cache, *entries)
    cache.truncate_from_end(end)
    assert _entries(cache) == entries[:kept]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (5, [(2, 6), (3, 8), (4, 11)]),
        (6, [(2, 6), (3, 8), (4, 11)]),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (20, [(4, 20)]),
    ],
)
def test_truncation_from_the_start_keeps_the_epoch_that_covers_it(cache, start, expected):
    _fill(cache, (2, 6), (3, 8), (4, 11))
    cache.truncate_from_start(start)
    assert _entries(cache) == expected


def test_epoch_at_names_the_epoch_of_a_record(cache):
    _fill(cache, (2, 6), (3, 8))
    assert [cache.epoch_at(offset) for offset in (5, 6, 7, 8, 100)] == [-1, 2, 2, 3, 3]


def test_entries_are_on_the_disk_when_flush_returns(disk, cache):
    disk.fsync_directory(DIRECTORY.parent)
    _fill(cache, (2, 6), (3, 8))
    cache.flush(9)
    disk.crash(random.Random(1))
    assert _entries(LeaderEpochCache(disk, DIRECTORY)) == [(2, 6), (3, 8)]


def test_flush_writes_only_what_begins_below_the_log_end(disk, cache):
    _fill(cache, (2, 6), (3, 8))
    cache.flush(8)
    assert _entries(LeaderEpochCache(disk, DIRECTORY)) == [(2, 6)]
    cache.flush(9)
    assert _entries(LeaderEpochCache(disk, DIRECTORY)) == [(2, 6), (3, 8)]


@pytest.mark.parametrize(
    ("change", "is_written"),
    [
        (lambda cache: None, False),
        (lambda cache: cache.assign(9, 20), False),
        (lambda cache: cache.assign(3, 20), False),
        (lambda cache: cache.truncate_from_start(7), False),
        (lambda cache: cache.assign(9, 19), True),
        (lambda cache: cache.truncate_from_end(8), True),
        (lambda cache: cache.truncate_from_start(20), True),
        (lambda cache: cache.clear(), True),
    ],
)
def test_flush_writes_only_when_the_file_says_something_else(disk, cache, change, is_written):
    _fill(cache, (2, 6), (3, 8))
    cache.flush(20)
    change(cache)
    before = disk.operations
    cache.flush(20)
    assert (disk.operations > before) == is_written


def test_flush_cuts_entries_that_a_truncation_removed(disk, cache):
    _fill(cache, (2, 6), (3, 8), (4, 11))
    cache.flush(20)
    cache.truncate_from_end(10)
    cache.flush(10)
    assert _entries(LeaderEpochCache(disk, DIRECTORY)) == [(2, 6), (3, 8)]


def test_entries_that_could_not_be_written_are_written_by_the_next_flush(disk, cache):
    _fill(cache, (2, 6))
    disk.fail = failing(errno.ENOSPC, "pwrite", times=1)
    with pytest.raises(RefreshMetadataError, match="leader-epoch-checkpoint failed"):
        cache.flush(9)
    cache.flush(9)
    assert _entries(LeaderEpochCache(disk, DIRECTORY)) == [(2, 6)]
