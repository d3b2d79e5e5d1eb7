"""The throttle, the checkpoint, the statistics, and the way that batches are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from cleaner_batches import data_batch
from memory_disk import MemoryFiles

from tidelog_foundation.errors import CorruptRecordError, TidelogError
from tidelog_node.log.cleaner.job import CleanerMemory, CleaningStatistics, Throttle
from tidelog_node.log.cleaner.source import BatchSource, CleaningAborted
from tidelog_node.log.directory.offset_checkpoint_file import CLEANER_OFFSETS, OffsetCheckpointFile

DIRECTORY = Path("/logs")
PATH = DIRECTORY / "t-0" / "00000000000000000000.log"


class Time:
    """A clock that a sleep moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_throttle_lets_no_more_pass_than_its_rate() -> None:
    time = Time()
    throttle = Throttle(1000, time.clock, time.sleep)
    for size in (500, 2000, 100, 0):
        throttle.take(size)
    assert time.slept == pytest.approx([0.5, 2.0, 0.1])
    time.now += 60
    throttle.take(1)
    assert len(time.slept) == 3


def test_throttle_without_a_limit_never_waits() -> None:
    time = Time()
    throttle = Throttle(math.inf, time.clock, time.sleep)
    throttle.take(10**15)
    throttle.take(1)
    assert time.slept == []


@pytest.mark.parametrize("rate", [0, -1, math.nan])
def test_throttle_refuses_a_rate_that_is_not_positive(rate: float) -> None:
    with pytest.raises(ValueError, match="bytes per second"):
        Throttle(rate, lambda: 0.0, lambda seconds: None)


KNOWN = {("a", 0), ("b", 1), ("c", 2)}


def loaded(disk: MemoryFiles) -> OffsetCheckpointFile:
    return OffsetCheckpointFile(disk, DIRECTORY / CLEANER_OFFSETS, KNOWN)


def test_checkpoint_survives_and_follows_cuts_and_removals(disk: MemoryFiles) -> None:
    disk.mkdir(DIRECTORY)
    checkpoint = loaded(disk)
    checkpoint.put(("a", 0), 100)
    checkpoint.put(("b", 1), 50)
    checkpoint.lower(("a", 0), 70)
    checkpoint.lower(("b", 1), 70)
    checkpoint.lower(("c", 2), 70)
    disk.kill()
    assert disk.read_bytes(DIRECTORY / "cleaner-offset-checkpoint") == b"0\n2\na 0 70\nb 1 50\n"
    checkpoint = loaded(disk)
    checkpoint.remove([("a", 0), ("z", 9)])
    assert [loaded(disk).get(key) for key in (("a", 0), ("b", 1))] == [None, 50]


def test_checkpoint_does_not_take_the_entry_of_a_partition_that_has_no_folder(disk: MemoryFiles) -> None:
    disk.write_bytes(DIRECTORY / "cleaner-offset-checkpoint", b"0\n2\na 0 70\nb 1 50\n")
    checkpoint = OffsetCheckpointFile(disk, DIRECTORY / CLEANER_OFFSETS, {("b", 1)})
    assert [checkpoint.get(key) for key in (("a", 0), ("b", 1))] == [None, 50]


def test_checkpoint_is_as_it_was_when_the_disk_refuses(disk: MemoryFiles) -> None:
    disk.mkdir(DIRECTORY)
    checkpoint = loaded(disk)
    checkpoint.put(("a", 0), 100)
    disk.capacity = 0
    with pytest.raises(TidelogError):
        checkpoint.put(("a", 0), 200)
    assert checkpoint.get(("a", 0)) == 100 == loaded(disk).get(("a", 0))


def test_memory_gives_a_small_log_a_small_map_and_a_large_one_its_share() -> None:
    memory = CleanerMemory(24 * 1000, 0.9, 4096)
    assert memory.max_keys == 900
    assert memory.map_bytes_for(10) == 24 * 22
    assert memory.map_bytes_for(10**9) == 24 * 1000


def test_statistics_are_one_line() -> None:
    statistics = CleaningStatistics(1 << 20, 4 << 20, 1 << 20, 1000, 300, 0, 300, 0.25, 500.0, 2000.0)
    assert str(statistics) == (
        "4.0 MiB read, 1.0 MiB written (75.0% smaller), 1000 records to 300 (70.0% fewer) in 2.0 s (2.0 MiB/s,"
        " 1.0 MiB indexed in 0.5 s), 300 keys fill 25.0% of the buffer"
    )
    assert "0.0%" in str(CleaningStatistics())


def read(disk: MemoryFiles, size: int, buffer_bytes: int, check: Callable[[], None] = lambda: None) -> list[bytes]:
    source = BatchSource(disk, buffer_bytes, Throttle(math.inf, lambda: 0.0, lambda seconds: None), check)
    with source.batches(PATH, size) as batches:
        return [data[position:] for data, position in batches]


@pytest.mark.parametrize("buffer_bytes", [1, 61, 100, 150, 700, 5000])
def test_source_yields_each_batch_whatever_the_buffer(disk: MemoryFiles, buffer_bytes: int) -> None:
    batches = [data_batch(offset, (b"key", bytes(37 * (offset % 7)))) for offset in range(20)]
    disk.write_bytes(PATH, b"".join(batches) + b"not of the segment")
    found = read(disk, sum(map(len, batches)), buffer_bytes)
    assert [data[: len(batch)] for data, batch in zip(found, batches, strict=True)] == batches
    assert disk.handle_count == 0


def test_source_gives_up_when_the_file_is_gone_or_cut(disk: MemoryFiles) -> None:
    with pytest.raises(CleaningAborted):
        read(disk, 100, 4096)
    disk.write_bytes(PATH, data_batch(0, (b"key", b"value")))
    with pytest.raises(CleaningAborted):
        read(disk, 1000, 4096)
    assert disk.handle_count == 0


def test_source_gives_up_when_it_is_told_to(disk: MemoryFiles) -> None:
    def check() -> None:
        raise CleaningAborted("stopped")

    disk.write_bytes(PATH, data_batch(0, (b"key", b"value")))
    with pytest.raises(CleaningAborted, match="stopped"):
        read(disk, 10, 4096, check)


@pytest.mark.parametrize("length", [-1, 0, 48, 10**6, 2**31 - 1])
def test_source_refuses_a_length_that_no_batch_has(disk: MemoryFiles, length: int) -> None:
    batch = bytearray(data_batch(0, (b"key", b"value")))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    disk.write_bytes(PATH, bytes(batch))
    with pytest.raises(CorruptRecordError):
        read(disk, len(batch), 4096)


def test_source_refuses_a_torn_batch_at_the_end(disk: MemoryFiles) -> None:
    batch = data_batch(0, (b"key", b"value"))
    for size in (len(batch) + 5, len(batch) + 30, 2 * len(batch) - 1):
        disk.write_bytes(PATH, (batch * 2)[:size])
        with pytest.raises(CorruptRecordError):
            read(disk, size, 4096)
