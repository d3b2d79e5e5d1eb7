"""Periodic work on a node's partitions: lag checks, flushes, retention, idle producers and checkpoints.

Acknowledgements do not wait for a flush, as in Kafka, because acknowledged records are on all in-sync replicas. The
recovery point only shortens the check after a crash. The high watermark's checkpoint only saves a new leader time.
Without the checkpoint of log starts, individually deleted records would reappear after a crash.

An error of one partition never ends a task or delays the other partitions. The task logs it once until it is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from weakref import WeakSet

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.registry import PartitionRegistry

logger = logging.getLogger(__name__)

Interval = Callable[[], int]
"""A function that returns the current interval in ms; a running pause adopts a shorter interval within a second."""
_CHECK_S = 1.0


async def watch_lag(registry: PartitionRegistry, replica_lag_time_max_ms: int) -> None:
    """Check for lagging followers twice within ``replica.lag.time.max.ms``, until cancelled, to shrink ISRs."""
    while True:
        await asyncio.sleep(replica_lag_time_max_ms / 2000)
        slices = TimeSlices()
        for partition in registry:
            if _is_hosted(registry, partition):
                partition.pass_time()
            if slices.is_over:
                await slices.give_way()


async def flush_logs(registry: PartitionRegistry, interval_ms: Interval) -> None:
    """Flush the logs whose ``flush.ms`` is over, one after the other in a thread, until cancelled."""

    async def flush(partition: Partition) -> None:
        await partition.flush()

    await _Round(registry, "Flushing", flush, lambda partition: partition.needs_flush()).repeat(interval_ms)


async def delete_expired_segments(registry: PartitionRegistry, interval_ms: int) -> None:
    """Apply ``retention.ms``, ``retention.bytes`` and moved log starts each ``interval_ms``, until cancelled."""

    async def delete(partition: Partition) -> None:
        deleted = await partition.delete_expired()
        if deleted:
            logger.info("%s: %d segments were deleted: %s", partition, len(deleted), ", ".join(deleted))
        # Each partition's files take a separate step of the event loop.
        await asyncio.sleep(0)

    await _Round(registry, "Deleting the expired segments of", delete).repeat(lambda: interval_ms)


async def remove_deleted_files(registry: PartitionRegistry, interval_ms: Interval) -> None:
    """Remove deleted files whose ``file.delete.delay.ms`` is over, in a thread, until cancelled."""

    async def remove(partition: Partition) -> None:
        await partition.remove_deleted_files()

    def is_due(partition: Partition) -> bool:
        return partition.log.deleted_file_count > 0

    await _Round(registry, "Removing the deleted files of", remove, is_due).repeat(interval_ms)


async def expire_producers(registry: PartitionRegistry, interval_ms: int) -> None:
    """Remove producers idle for ``producer.id.expiration.ms``, each ``interval_ms``, until cancelled."""

    async def expire(partition: Partition) -> None:
        partition.expire_producers()
        await asyncio.sleep(0)

    await _Round(registry, "Expiring the idle producers of", expire).repeat(lambda: interval_ms)


async def write_checkpoints(registry: PartitionRegistry, interval_ms: int) -> None:
    """Write changed high watermarks and recovery points each ``interval_ms``, until cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        await registry.checkpoints.write()


async def write_log_start_offsets(registry: PartitionRegistry, interval_ms: int) -> None:
    """Write the log start offsets above 0 each ``interval_ms``, until cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        await registry.checkpoints.write_log_start_offsets()


def _is_hosted(registry: PartitionRegistry, partition: Partition) -> bool:
    return registry.get(partition.topic, partition.index) is partition


async def _pause(interval_ms: Interval) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while True:
        left_s = begin + interval_ms() / 1000 - loop.time()
        if left_s <= 0:
            return
        await asyncio.sleep(min(left_s, _CHECK_S))


class _Round:
    """A periodic action on every partition for which it ``is_due``."""

    def __init__(
        self,
        registry: PartitionRegistry,
        action: str,
        do: Callable[[Partition], Awaitable[None]],
        is_due: Callable[[Partition], bool] = lambda partition: True,
    ) -> None:
        self._registry = registry
        self._action = action
        self._do = do
        self._is_due = is_due
        self._failing: WeakSet[Partition] = WeakSet()

    async def repeat(self, interval_ms: Interval) -> None:
        while True:
            await _pause(interval_ms)
            slices = TimeSlices()
            for partition in self._registry:
                is_usable = _is_hosted(self._registry, partition) and partition.log.failure is None
                if is_usable and self._is_due(partition):
                    await self._apply(partition)
                if slices.is_over:
                    await slices.give_way()

    async def _apply(self, partition: Partition) -> None:
        try:
            await self._do(partition)
        except Exception as error:
            if partition not in self._failing and _is_hosted(self._registry, partition):
                self._failing.add(partition)
                is_named = isinstance(error, TidelogError)
                logger.error("%s %s failed: %s", self._action, partition, error, exc_info=not is_named)
        else:
            self._failing.discard(partition)
