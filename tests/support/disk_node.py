"""One node's registry on a disk in memory with several log directories, without a network or controller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

from memory_disk import MemoryFiles

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.event_loop import SystemClock
from tidelog_node.hosting.commands import AssignDirectory
from tidelog_node.log import PartitionLog
from tidelog_node.partitions import LogManager, Partition, PartitionRegistry
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC_ID = TopicId(b"0123456789abcdef")
NODE = BrokerId(1)
PATHS = ("/a", "/b")


class DiskNode:
    """A node started on a disk, with the last image it received.

    ``assigned`` are the directories of replicas that it reported to the controller, ``keeping`` the replicas whose logs
    it reported as never lost; ``ended_with`` is the reason why it would stop.
    """

    def __init__(
        self, disk: MemoryFiles, paths: Sequence[str] = PATHS, config: TopicConfig | None = None, topic: str = "t"
    ) -> None:
        self.topic = topic
        self.directories = LogManager.open(paths, "c", NODE, disk)
        self.image = MetadataImage()
        self.assigned: dict[tuple[bytes, int], DirectoryId] = {}
        self.keeping: set[tuple[bytes, int]] = set()
        self.ended_with: list[TidelogError] = []
        self.heartbeat_requests = 0
        self.fetching: set[str] = set()
        config = config or TopicConfig()
        found = self.directories.load(config, threads_per_directory=2)
        self.registry = PartitionRegistry(
            NODE, self.directories, found, config, 30_000, SystemClock(), self.ended_with.append
        )
        fake = cast(Any, self)
        self.registry.connect(fake, fake, fake, self._count_heartbeat_request)

    def submit(self, assignment: object, *_: object) -> None:
        """Act as the queue of directory assignments and of ISR changes, which are not used here."""
        if isinstance(assignment, AssignDirectory):
            key = (assignment.topic_id, assignment.index)
            self.assigned[key] = assignment.directory
            (self.keeping.add if assignment.keeps_log else self.keeping.discard)(key)

    def begin(self, leader_id: BrokerId) -> None:
        """Act as the fetchers at the start of a leader."""

    def end(self, leader_id: BrokerId) -> None:
        """Act as the fetchers at the end of a leader."""

    def add(self, leader_id: BrokerId, partition: Partition, leader_epoch: LeaderEpoch) -> None:
        """Act as the fetchers."""
        self.fetching.add(str(partition))

    def remove(self, leader_id: BrokerId, partition: Partition) -> None:
        """Act as the fetchers."""
        self.fetching.discard(str(partition))

    def pause_additions(self) -> None:
        """Act as the fetchers before many additions."""

    def resume_additions(self) -> None:
        """Act as the fetchers after the additions."""

    async def change(self, *records: MetadataRecord) -> None:
        """Apply one entry of the metadata log."""
        before = self.image
        self.image = before.apply(before.offset + 1, 1, records)
        await self.registry.apply(self.image, delta_between(before, self.image))
        self.registry._hosted.check_invariants()

    async def create(
        self,
        partitions: int = 1,
        replicas: tuple[BrokerId, ...] = (NODE,),
        directories: tuple[DirectoryId, ...] = (),
        isr: tuple[BrokerId, ...] | None = None,
        epoch: int = 0,
        topic_id: TopicId = TOPIC_ID,
    ) -> None:
        """Register this node and create its topic, led by the first replica, with an optional older ``epoch``."""
        offset = self.image.offset + 1
        brokers = [
            RegisterBrokerRecord(b, b"i" * 16, BrokerEpoch(offset), Endpoint("h", 1), fenced=False)
            for b in (NODE, BrokerId(2))
        ]
        records = [
            PartitionRecord(
                topic_id,
                i,
                replicas,
                isr or replicas,
                replicas[0],
                leader_epoch=LeaderEpoch(epoch),
                partition_epoch=PartitionEpoch(epoch),
                directories=tuple(directories),
            )
            for i in range(partitions)
        ]
        await self.change(*brokers, TopicRecord(self.topic, topic_id), *records)

    async def elect(self, leader: int, index: int = 0) -> None:
        """Make a broker, possibly this one again, the leader of a partition."""
        await self.change(PartitionChangeRecord(TOPIC_ID, index, leader=BrokerId(leader)))

    def partition(self, index: int = 0) -> Partition:
        """Return an online partition."""
        partition = self.registry.get(self.topic, index)
        assert partition is not None
        return partition

    def log(self, index: int = 0) -> PartitionLog:
        """Return the partition's log."""
        return self.partition(index).log

    def home(self, index: int = 0) -> str:
        """Return the log directory of a partition."""
        return str(self.log(index).directory.parent)

    @contextlib.asynccontextmanager
    async def retrying(self) -> AsyncIterator[None]:
        """Run the task that retries refused disk operations."""
        task = asyncio.create_task(self.registry.retry_full(), name="retry")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    @contextlib.asynccontextmanager
    async def moving(self) -> AsyncIterator[None]:
        """Run the task that moves replicas."""
        task = asyncio.create_task(self.registry.relocations.run(), name="relocations")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def close(self) -> None:
        """Stop like a node that is told to stop."""
        await self.registry.close()
        await self.registry.checkpoints.write()
        await self.registry.checkpoints.write_log_start_offsets()
        self.directories.close(clean=True, broker_epoch=BrokerEpoch(5))

    def _count_heartbeat_request(self) -> None:
        self.heartbeat_requests += 1


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    """Wait for a condition, and fail after the timeout."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.002)
