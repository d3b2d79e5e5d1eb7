"""The task that compacts a node's logs, on a real registry: disks that fail, logs that change meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from disk_node import DiskNode, until
from memory_disk import MemoryFiles, no_fault

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import RecordBatchBuilder, read_records
from tidelog_node.event_loop import SystemClock
from tidelog_node.partitions.cleaning import CleanerSettings, clean_logs
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication import EpochEnd
from tidelog_quorum.metadata.records import RemoveTopicRecord

CONFIG = TopicConfig(cleanup_policy=("compact",), segment_bytes=600, min_cleanable_dirty_ratio=0.1)
CHECKPOINT = "cleaner-offset-checkpoint"


def settings(threads: int = 1, bytes_per_second: float = math.inf) -> CleanerSettings:
    return CleanerSettings(threads, 2**20 * threads, 0.9, 4096 * threads, bytes_per_second, backoff_ms=2)


@contextlib.asynccontextmanager
async def cleaning(node: DiskNode, disk: MemoryFiles, chosen: CleanerSettings | None = None) -> AsyncIterator[None]:
    task = asyncio.create_task(
        clean_logs(node.registry, node.directories, chosen or settings(), SystemClock(), disk), name="log-cleaner"
    )
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def started(disk: MemoryFiles, partitions: int = 1, config: TopicConfig = CONFIG) -> DiskNode:
    node = DiskNode(disk, config=config)
    await node.create(partitions)
    return node


def fill(partition: Partition, count: int = 30, keys: int = 5) -> None:
    """Write each key many times and seal all of it."""
    for index in range(count):
        builder = RecordBatchBuilder()
        builder.append(b"k%d" % (index % keys), b"v%d" % index * 10, (), time.time_ns() // 1_000_000)
        partition.append(builder.build(), needs_all_replicas=False)
    seal(partition)


def seal(partition: Partition) -> None:
    partition.log.roll(time.time_ns() // 1_000_000)
    partition.log.flush()


def keys_of(partition: Partition) -> list[bytes | None]:
    log, offset, found = partition.log, partition.log.log_start_offset, []
    while data := log.read(offset, 1, log.log_end_offset):
        found += [record.key for record in read_records(data)]
        offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
    return found


def entry_of(disk: MemoryFiles, partition: Partition) -> int | None:
    path = partition.log.directory.parent / CHECKPOINT
    lines = disk.read_bytes(path).decode().splitlines()[2:] if path in disk.paths() else []
    return next((int(line.split()[2]) for line in lines if line.split()[1] == str(partition.index)), None)


def is_clean(partition: Partition) -> bool:
    keys = keys_of(partition)
    return len(keys) == len(set(keys))


def leftovers(disk: MemoryFiles) -> list[Path]:
    live = [path for path in disk.paths() if not path.parent.name.endswith("-delete")]
    return [path for path in live if ".cleaned" in path.name or ".swap" in path.name]


def cleanings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "cleaned t-" in record.message]


def test_cleaner_task_compacts_every_due_log_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk, partitions=4)
        for index in range(4):
            fill(node.partition(index))
        with caplog.at_level(logging.INFO, "tidelog_node.partitions.cleaning"):
            async with cleaning(node, disk, settings(threads=2)):
                await until(lambda: len(cleanings(caplog)) == 4)
        assert all(is_clean(node.partition(index)) for index in range(4))
        assert all(entry_of(disk, node.partition(index)) == 30 for index in range(4))
        line = cleanings(caplog)[0]
        assert "dirty from offset 0 to 30" in line
        assert "30 records to 5" in line
        measured = node.registry.measured
        assert (measured.cleaner_runs, measured.cleaner_failures) == (4, 0)
        assert measured.cleaner_read_bytes > measured.cleaner_written_bytes > 0
        await node.close()

    asyncio.run(check())


def test_cleaner_task_leaves_logs_of_another_policy_alone() -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk, partitions=2)
        for index in range(2):
            fill(node.partition(index))
        node.partition(0).log.config = TopicConfig(segment_bytes=600)
        async with cleaning(node, disk):
            await until(lambda: is_clean(node.partition(1)))
            await asyncio.sleep(0.02)
        assert len(keys_of(node.partition(0))) == 30
        await node.close()

    asyncio.run(check())


def test_cleaner_task_goes_on_from_its_checkpoint_after_a_restart() -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk)
        fill(node.partition())
        async with cleaning(node, disk):
            await until(lambda: entry_of(disk, node.partition()) == 30)
        await node.close()
        node = await started(disk)
        assert node.directories.find(node.home()).cleaner_offsets.get(("t", 0)) == 30
        fill(node.partition(), count=10)
        async with cleaning(node, disk):
            await until(lambda: entry_of(disk, node.partition()) == 40)
        assert is_clean(node.partition())
        await node.close()

    asyncio.run(check())


def test_cleaner_task_cleans_again_what_comes_after_a_truncation() -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk)
        partition = node.partition()
        fill(partition)
        async with cleaning(node, disk):
            await until(lambda: entry_of(disk, partition) == 30)
            await node.elect(2)
            epoch = LeaderEpoch(partition.state.leader_epoch)
            await partition.truncate_diverging(epoch, 30, EpochEnd(LeaderEpoch(0), 12))
            assert partition.log.log_end_offset <= 12
            await until(lambda: (entry_of(disk, partition) or 0) <= 12)
            await until(lambda: partition.truncated_to is None)
            await node.elect(1)
            fill(partition, count=25)
            await until(lambda: is_clean(partition))
        await node.close()

    asyncio.run(check())


def test_cleaner_task_forgets_a_log_that_is_deleted_while_it_is_cleaned() -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk)
        fill(node.partition(), count=200)
        async with cleaning(node, disk, settings(bytes_per_second=50_000)):
            await until(lambda: leftovers(disk))
            await node.change(RemoveTopicRecord(node.partition().topic_id))
            await until(lambda: not leftovers(disk))
            await node.create()
            fill(node.partition(), count=12)
            await until(lambda: is_clean(node.partition()))
        await node.close()

    asyncio.run(check())


def test_cleaner_task_leaves_nothing_behind_when_it_is_cancelled_at_work() -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk)
        fill(node.partition(), count=200)
        async with cleaning(node, disk, settings(bytes_per_second=50_000)):
            await until(lambda: [path for path in disk.paths() if path.name.endswith(".log.cleaned")])
            stopped_at = time.monotonic()
        assert time.monotonic() - stopped_at < 2
        assert leftovers(disk) == []
        assert entry_of(disk, node.partition()) is None
        await node.close()

    asyncio.run(check())


def test_cleaner_task_tries_again_when_a_full_disk_has_space(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk, partitions=2)
        for index in range(2):
            fill(node.partition(index), keys=29)
        full = node.partition(0).log.directory
        disk.fail = lambda operation, path: (
            errno.ENOSPC if operation == "pwrite" and path.parent == full and "cleaned" in path.name else None
        )
        async with cleaning(node, disk):
            await until(lambda: entry_of(disk, node.partition(1)) == 30)
            assert is_clean(node.partition(1))
            await until(lambda: "Cleaning t-0 failed" in caplog.text)
            # Not at once: on a slow machine the next attempt has begun.
            await until(lambda: not leftovers(disk))
            disk.fail = no_fault
            await until(lambda: is_clean(node.partition(0)))
        assert node.registry.measured.cleaner_failures >= 1
        assert node.partition(0).log.failure is None
        await node.close()

    asyncio.run(check())


def test_cleaner_task_leaves_a_damaged_log_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk, partitions=2)
        for index in range(2):
            fill(node.partition(index))
        path = node.partition(0).log.sealed_segments()[1].path
        disk.flip_bit(path, disk.size_of(path) - 3)
        async with cleaning(node, disk):
            await until(lambda: is_clean(node.partition(1)))
            await until(lambda: "t-0 cannot be cleaned" in caplog.text)
            await asyncio.sleep(0.05)
        assert caplog.text.count("t-0 cannot be cleaned") == 1
        assert node.registry.measured.uncleanable == {("t", 0)}
        assert node.partition(0).log.log_end_offset == 30
        await node.close()

    asyncio.run(check())


def test_cleaner_task_lets_the_loop_append_and_read_beside_it() -> None:
    async def check() -> None:
        disk = MemoryFiles()
        node = await started(disk)
        partition = node.partition()
        fill(partition, count=100)
        async with cleaning(node, disk):
            for round_ in range(40):
                fill(partition, count=5, keys=3)
                assert keys_of(partition)[-1] == b"k1", round_
                await asyncio.sleep(0.001)
            await until(lambda: is_clean(partition))
        partition.log.check_invariants()
        assert sorted(filter(None, keys_of(partition))) == [b"k%d" % key for key in range(5)]
        await node.close()

    asyncio.run(check())
