"""What a node does to its partitions by the clock gives way to requests, however many partitions there are."""

from __future__ import annotations

import asyncio

import pytest
from disk_node import DiskNode, until
from memory_disk import MemoryFiles

from tidelog_node.partitions import Partition
from tidelog_node.partitions.housekeeping import flush_logs, watch_lag

MANY = 100


@pytest.mark.parametrize("step", ["pass_time", "needs_flush"])
def test_round_over_many_partitions_gives_way_between_them(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setattr("tidelog_node.partitions.time_slices.SLICE_S", 0.0)
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
