"""The partitions that this node holds, kept as the metadata says: opened, led, followed, closed, deleted.

``apply`` runs for one image after the other. What it does to one partition is a single step on the event loop;
opening and deleting logs happens in a thread, so a topic of many partitions holds nobody up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId
from tidelog_node.log import PartitionLog
from tidelog_node.partitions.clock import Clock
from tidelog_node.partitions.fetcher import FetcherPool
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.partitions.log_directories import (
    FoundPartition,
    LogDirectories,
    LogDirectoryDescription,
    PartitionKey,
)
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication import PartitionState
from tidelog_node.replication.commands import ProposeIsr
from tidelog_quorum.metadata import (
    MetadataDelta,
    MetadataImage,
    PartitionChange,
    PartitionRegistration,
    TopicConfig,
    topic_config,
)

logger = logging.getLogger(__name__)


class PartitionRegistry:
    """One per node. ``found`` are the logs of an earlier run, taken over when the first image names them."""

    def __init__(
        self,
        broker_id: BrokerId,
        directories: LogDirectories,
        found: dict[PartitionKey, FoundPartition],
        defaults: TopicConfig,
        replica_lag_time_max_ms: int,
        clock: Clock,
        on_storage_failure: Callable[[TidelogError], None],
    ) -> None:
        self.broker_id = broker_id
        self._directories = directories
        self._found = found
        self._defaults = defaults
        self._max_lag_ms = replica_lag_time_max_ms
        self._clock = clock
        self._on_storage_failure = on_storage_failure
        self._partitions: dict[PartitionKey, Partition] = {}
        self._eligible: Mapping[BrokerId, BrokerEpoch] = {}
        self._fetchers: FetcherPool | None = None
        self._isr_changes: IsrChanges | None = None

    def connect(self, fetchers: FetcherPool, isr_changes: IsrChanges) -> None:
        """Say who copies logs and who talks to the controller; once, before the first image."""
        self._fetchers = fetchers
        self._isr_changes = isr_changes

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        """Return a partition that this node holds, or None."""
        return self._partitions.get((topic, index))

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Bring the partitions to the state of ``image``, which differs from the last one by ``delta``.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, a log cannot be opened.
        """
        if delta.changed_brokers is not None:
            self._change_eligible(image)
        for change in delta.changed_partitions:
            if change.after is None or self.broker_id not in change.after.replicas:
                await self._remove(change)
        for change in delta.changed_partitions:
            if change.after is not None and self.broker_id in change.after.replicas:
                await self._ensure(change, change.after, image)
                # A new leader epoch is written to the disk: many in a row must not hold up heartbeats and requests.
                await asyncio.sleep(0)
        self._change_configs(image, delta)

    async def move(self, topic: str, partition: int, path: str) -> None:
        """Begin to move a replica to another of this node's log directories (AlterReplicaLogDirs, KIP-113).

        Returns when the move has begun; it goes on in the background and replaces an earlier one of the replica. A move
        to where the replica is ends one that is under way.

        Raises:
            TidelogError: LOG_DIR_NOT_FOUND, ``path`` is not in ``log.dirs``; KAFKA_STORAGE_ERROR, it or the replica's
                own directory is offline; REPLICA_NOT_AVAILABLE, this node has no replica of that partition.
        """
        raise NotImplementedError

    async def describe_log_dirs(self) -> list[LogDirectoryDescription]:
        """Return every directory of ``log.dirs`` with its replicas and the space of its file system (KIP-113, 827)."""
        raise NotImplementedError

    def check_online(self, topic: str, index: int) -> None:
        """Raise KAFKA_STORAGE_ERROR when this node holds a replica in a directory that is offline; else do nothing."""

    async def discard_unknown(self) -> None:
        """Set aside the logs of an earlier run that the first image does not name."""
        for key in list(self._found):
            await self._set_aside(self._found.pop(key))

    def checkpoints(self) -> tuple[dict[Path, dict[PartitionKey, int]], dict[Path, dict[PartitionKey, int]]]:
        """Return the high watermarks and the recovery points, by log directory."""
        high_watermarks: dict[Path, dict[PartitionKey, int]] = {}
        recovery_points: dict[Path, dict[PartitionKey, int]] = {}
        for key, partition in self._partitions.items():
            parent = partition.log.directory.parent
            high_watermarks.setdefault(parent, {})[key] = partition.high_watermark
            recovery_points.setdefault(parent, {})[key] = partition.log.recovery_point
        for key, found in self._found.items():
            parent = found.log.directory.parent
            high_watermarks.setdefault(parent, {})[key] = found.high_watermark
            recovery_points.setdefault(parent, {})[key] = found.log.recovery_point
        return high_watermarks, recovery_points

    async def close(self) -> None:
        """Close every log, also when one cannot be closed.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, at least one was not closed cleanly.
        """
        closings = [p.close() for p in self] + [asyncio.to_thread(f.log.close) for f in self._found.values()]
        for outcome in await asyncio.gather(*closings, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a proposal to the controller (PartitionEffects)."""
        assert self._isr_changes is not None
        self._isr_changes.submit(partition, proposal)

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy a partition from its leader (PartitionEffects)."""
        assert self._fetchers is not None
        self._fetchers.start(partition, leader_id, leader_epoch)

    def stop_fetching(self, partition: Partition) -> None:
        """Copy it no more (PartitionEffects)."""
        assert self._fetchers is not None
        self._fetchers.stop(partition)

    def storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """A log went offline (PartitionEffects): the node stops, so that its leaderships move."""
        self._on_storage_failure(error)

    def _change_eligible(self, image: MetadataImage) -> None:
        self._eligible = {b.broker_id: b.broker_epoch for b in image.brokers.values() if b.is_active}
        for partition in self._partitions.values():
            partition.change_eligible(self._eligible)

    async def _remove(self, change: PartitionChange) -> None:
        key = (change.topic_name, change.index)
        partition = self._partitions.get(key)
        if partition is None or partition.topic_id != change.topic_id:
            return
        del self._partitions[key]
        await partition.delete()
        logger.info("%s was removed from this node", partition)

    async def _ensure(self, change: PartitionChange, registration: PartitionRegistration, image: MetadataImage) -> None:
        partition = self._partitions.get((change.topic_name, change.index))
        if partition is None:
            partition = await self._open(change, topic_config(image, change.topic_name, self._defaults))
            self._partitions[change.topic_name, change.index] = partition
        partition.change_registration(registration)

    async def _open(self, change: PartitionChange, config: TopicConfig) -> Partition:
        key = (change.topic_name, change.index)
        log, high_watermark = await self._open_log(key, change.topic_id, config)
        state = PartitionState(self.broker_id, high_watermark, config.min_insync_replicas, self._max_lag_ms)
        partition = Partition(change.topic_name, change.topic_id, change.index, log, state, self, self._clock)
        partition.change_eligible(self._eligible)
        return partition

    async def _open_log(self, key: PartitionKey, topic_id: TopicId, config: TopicConfig) -> tuple[PartitionLog, int]:
        """A log that was found changes hands without a pause, so that no checkpoint is written without it."""
        found = self._found.pop(key, None)
        if found is not None and found.topic_id == topic_id:
            found.log.config = config
            return found.log, found.high_watermark
        if found is not None:
            await self._set_aside(found)
        return await asyncio.to_thread(self._directories.open_partition, key, topic_id, config), 0

    async def _set_aside(self, found: FoundPartition) -> None:
        await asyncio.to_thread(found.log.close)
        await asyncio.to_thread(self._directories.set_aside, found.log.directory)

    def _change_configs(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if not delta.topics_with_changed_config:
            return
        for partition in self:
            if partition.topic in delta.topics_with_changed_config:
                partition.change_config(topic_config(image, partition.topic, self._defaults))
