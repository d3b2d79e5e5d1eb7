"""What a node does to its partitions by the clock: looks for lagging followers, flushes, writes checkpoints.

Acknowledgements do not wait for a flush, as in Kafka: what was acknowledged is on all in-sync replicas. The recovery
point only shortens the check after a crash, the high watermark's checkpoint only saves a new leader time.
"""

from __future__ import annotations

import asyncio
import logging

from tidelog.errors import TidelogError
from tidelog_node.partitions.log_directories import LogDirectories
from tidelog_node.partitions.registry import PartitionRegistry

logger = logging.getLogger(__name__)


async def watch_lag(registry: PartitionRegistry, replica_lag_time_max_ms: int) -> None:
    """Shrink ISRs: look twice within ``replica.lag.time.max.ms``, until cancelled."""
    while True:
        await asyncio.sleep(replica_lag_time_max_ms / 2000)
        for partition in registry:
            partition.pass_time()


async def flush_logs(registry: PartitionRegistry, interval_ms: int) -> None:
    """Put every log on the disk each ``interval_ms``, one after the other in a thread, until cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        for partition in registry:
            is_held = registry.get(partition.topic, partition.index) is partition
            if not is_held or partition.log.recovery_point >= partition.log.log_end_offset:
                continue
            try:
                await partition.flush()
            except TidelogError as error:
                logger.error("Flushing %s failed: %s", partition, error)


async def write_checkpoints(registry: PartitionRegistry, directories: LogDirectories, interval_ms: int) -> None:
    """Write high watermarks and recovery points each ``interval_ms``, until cancelled."""
    written = None
    while True:
        await asyncio.sleep(interval_ms / 1000)
        current = registry.checkpoints()
        if current == written:
            continue
        try:
            await asyncio.to_thread(directories.write_checkpoints, *current)
            written = current
        except TidelogError as error:
            logger.error("Writing the checkpoints failed: %s", error)
