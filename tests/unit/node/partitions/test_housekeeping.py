"""A node's periodic work on its partitions: it yields to requests, and logs each failure once."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from disk_node import DiskNode, until
from log_batches import produced_batch
from memory_disk import MemoryFiles

from tidelog_foundation.config import TopicConfig
from tidelog_node.partitions import Partition
from tidelog_node.partitions.housekeeping import flush_logs, watch_lag

MANY = 100


@pytest.mark.parametrize("step", ["pass_time", "needs_flush"])
def test_round_over_many_partitions_gives_way_between_them(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr("tidelog_foundation.time_slices.SLICE_S", 0.0)
    turns, turn_of_step = 0, []
    original = getattr(Partition, step)

    def noted(partition: Partition) -> object:
        turn_of_step.append(turns)
        return original(partition)

    monkeypatch.setattr(Partition, step, noted)

    async def run() -> None:
        nonlocal turns
        node = DiskNode(MemoryFiles())
        await node.create(MANY)
        jobs = {"pass_time": watch_lag(node.registry, 1), "needs_flush": flush_logs(node.registry, lambda: 1)}
        task = asyncio.create_task(jobs.pop(step), name="housekeeping")
        [other] = jobs.values()
        other.close()
        while len(turn_of_step) < MANY:
            turns += 1
            await asyncio.sleep(0)
        task.cancel()
        await until(task.done)
        assert len(set(turn_of_step)) >= MANY
        await node.close()

    asyncio.run(run())


def test_flush_that_fails_again_and_again_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    tries = []

    def no_room_for_epochs(operation: str, path: Path) -> int | None:
        if operation != "open" or not path.name.startswith("leader-epoch-checkpoint"):
            return None
        tries.append(path)
        return errno.ENOSPC

    async def run() -> None:
        disk = MemoryFiles()
        node = DiskNode(disk, config=TopicConfig(flush_ms=20))
        await node.create()
        node.partition().append(produced_batch(b"x"), needs_all_replicas=False)
        disk.fail = no_room_for_epochs
        task = asyncio.create_task(flush_logs(node.registry, lambda: 1), name="housekeeping")
        await until(lambda: len(tries) >= 3)
        task.cancel()
        await until(task.done)
        disk.fail = lambda operation, path: None
        await node.close()

    asyncio.run(run())
    assert [record.message for record in caplog.records if "Flushing t-0 failed" in record.message] == [
        "Flushing t-0 failed: KAFKA_STORAGE_ERROR: Writing /a/t-0/leader-epoch-checkpoint failed: "
        "[Errno 28] injected ENOSPC"
    ]
