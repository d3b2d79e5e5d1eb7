"""A new partition whose folder is made later: nothing is there before the first record, all of it with it."""

from __future__ import annotations

import errno
import itertools
import random
from pathlib import Path

import pytest
from memory_disk import MachineCrashed, MemoryFiles

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_foundation.records import assign_offsets
from tidelog_node.log import LogConfig, LogDirectory

PATH = Path("/data")
FOLDER = PATH / "topic-0"
TOPIC_ID = TopicId(bytes(range(16)))


def _open(disk):
    return LogDirectory.open(PATH, cluster_id="alpha", node_id=BrokerId(1), files=disk)


@pytest.fixture
def directory(disk):
    return _open(disk)


@pytest.fixture
def log(directory):
    return directory.open_log("topic", 0, TOPIC_ID, LogConfig(), may_create_later=True)


def _has_folder(disk):
    return FOLDER.name in disk.listdir(PATH)


def test_unfounded_log_is_empty_and_has_no_folder(disk, directory, log):
    assert not log.has_folder
    assert not _has_folder(disk)
    assert ("topic", 0) in directory
    assert (log.log_start_offset, log.log_end_offset, log.read(0, 100, 10), log.flush()) == (0, 0, b"", 0)
    assert log.delete_expired(10**15, 0) == []
    log.assign_epoch_start(3, 0)
    log.truncate_to(0)
    assert not _has_folder(disk)


@pytest.mark.parametrize("as_leader", [True, False])
def test_first_append_puts_the_folder_on_the_disk_before_the_record(disk, log, batch_of, as_leader):
    if as_leader:
        log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    else:
        batch = bytearray(batch_of(b"a"))
        assign_offsets(batch, 0, 0)
        log.append_as_follower(bytes(batch))
    assert log.has_folder
    for seed in range(20):
        crashed = disk.crashed_copy(random.Random(seed))
        again = _open(crashed)
        assert again.topic_id("topic", 0) == TOPIC_ID
        again.close(clean=False)
    assert disk.size_of(FOLDER / "00000000000000000000.log") > 0


def test_founding_in_the_background_is_done_once(disk, log, batch_of):
    log.create_folder()
    assert log.has_folder
    assert sorted(disk.listdir(FOLDER)) == ["00000000000000000000.log", "partition.metadata"]
    log.create_folder()
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    log.close()
    assert disk.handle_count == 1, "the lock of the directory"


def test_closed_unfounded_log_leaves_nothing_and_can_be_created_again(disk, directory, log, batch_of):
    log.close()
    log.create_folder()
    assert not _has_folder(disk)
    directory.close(clean=True)
    again = _open(disk).open_log("topic", 0, TOPIC_ID, LogConfig())
    again.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    assert again.log_end_offset == 1


def test_deleted_log_without_a_folder_leaves_nothing(disk, directory, log):
    renamed = log.rename_for_deletion()
    log.create_folder()
    assert not _has_folder(disk)
    assert renamed.name not in disk.listdir(PATH)


def test_log_that_begins_elsewhere_gets_its_folder(disk, log):
    log.truncate_fully_and_start_at(7)
    assert log.has_folder
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert "00000000000000000007.log" in disk.listdir(FOLDER)


def test_append_is_refused_while_the_folder_cannot_be_made_and_tried_again(disk, log, batch_of):
    healthy, disk.fail = disk.fail, lambda operation, path: errno.ENOSPC if path == FOLDER else None
    with pytest.raises(TidelogError, match="topic-0"):
        log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    assert (log.has_folder, log.log_end_offset) == (False, 0)
    disk.fail = healthy
    log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
    assert (log.has_folder, log.log_end_offset) == (True, 1)


def test_folder_that_is_there_is_not_taken_for_a_new_one(disk, directory):
    disk.mkdir(FOLDER)
    disk.write_bytes(FOLDER / "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    with pytest.raises(TidelogError, match="holds topic id"):
        directory.open_log("topic", 0, TOPIC_ID, LogConfig(), may_create_later=True)


@pytest.mark.parametrize("seed", range(5))
def test_crash_at_any_point_of_the_founding_leaves_what_the_next_start_can_use(batch_of, seed):
    for point in itertools.count():
        disk = MemoryFiles()
        log = _open(disk).open_log("topic", 0, TOPIC_ID, LogConfig(), may_create_later=True)
        disk.crash_at = disk.operations + point
        try:
            log.create_folder()
        except MachineCrashed:
            disk.crash(random.Random(seed))
        else:
            break
        again = _open(disk)
        assert again.topic_id("topic", 0) in (None, TOPIC_ID)
        log = again.open_log("topic", 0, TOPIC_ID, LogConfig(), may_create_later=True)
        log.append_as_leader(batch_of(b"a"), 0, now_ms=0)
        assert (log.log_end_offset, again.topic_id("topic", 0)) == (1, TOPIC_ID)
    assert point > 5
