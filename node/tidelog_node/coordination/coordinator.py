"""A coordinator, which runs one shard for each partition of an internal topic that its node leads.

The partitions determine the shards: each metadata image and each call updates the drivers from them. A driver begins
when the image with its leadership is published, so that it knows all topics that the former coordinators knew. It ends
by itself when its leadership ends, so a call never reaches a shard that this node does not lead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Iterable
from typing import Generic, Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.metrics import Histogram
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.waiting import watch_waits
from tidelog_node.coordination.calls import CallBounds
from tidelog_node.coordination.internal_topics import partition_for
from tidelog_node.coordination.shard_driver import ShardDriver, ShardEnvironment
from tidelog_node.coordination.shard_kind import CommandT, NewsT, RequestT, ResponseT, ShardCore, ShardKind
from tidelog_node.coordination.views import ShardViews, View, ViewFailedError
from tidelog_node.event_loop import Clock
from tidelog_node.partitions import MetadataCache, Partition, PartitionRegistry
from tidelog_node.replication import LeaderState
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.shards.request_fields import request_bytes
from tidelog_quorum.metadata.image import TopicImage

MAX_CALLS = 100_000
MAX_CALL_BYTES = 128 * 1024**2
_NEWS_INTERVAL_S = 0.1
"""A limit on the rate of updates to shards, since images may arrive often."""


class TopicCreator(Protocol):
    """The background creation of topics."""

    def want(self, names: Iterable[str]) -> None:
        """Request the creation of topics in the background."""

    def failure_of(self, name: str) -> str | None:
        """Return the reason why an internal topic could not be created, or None."""


@dataclass(frozen=True, slots=True)
class CoordinatorEnvironment:
    """The dependencies that the coordinators of a node share."""

    partitions: PartitionRegistry
    metadata: MetadataCache
    topic_creator: TopicCreator
    clock: Clock


class ShardCoordinator(Generic[RequestT, ResponseT, NewsT, CommandT]):
    """The coordinator of one kind of shards. The task :meth:`run` follows the metadata.

    ``commit_timeout_ms`` limits the wait of a call for the replicas. For ``moved_ms`` after the end of a leadership,
    the node counts as the former coordinator.
    """

    def __init__(
        self,
        kind: ShardKind[RequestT, ResponseT, NewsT, CommandT],
        environment: CoordinatorEnvironment,
        views: ShardViews,
        compression: str,
        commit_timeout_ms: int,
        moved_ms: int = 0,
    ) -> None:
        self._kind = kind
        self._topic = kind.topic
        self._partitions = environment.partitions
        self._metadata = environment.metadata
        self._topic_creator = environment.topic_creator
        self._clock = environment.clock
        self._moved_ms = moved_ms
        self._views = views
        self._environment = ShardEnvironment(views, environment.clock, self._is_hosted, compression, commit_timeout_ms)
        self._bounds = CallBounds(MAX_CALLS, MAX_CALL_BYTES)
        self._drivers: dict[int, ShardDriver[RequestT, ResponseT, NewsT, CommandT]] = {}
        self._ended_ms: dict[int, int] = {}
        """The time at which this node last ceased to coordinate each shard, on the monotonic clock."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Coordinate until cancelled. Waiting calls are then answered with NOT_COORDINATOR."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                noun = self._kind.noun
                tasks.create_task(self._tell_news(), name=f"{noun}-news")
                tasks.create_task(self._forget_lost_shards(), name=f"{noun}-view-upkeep")
                tasks.create_task(watch_waits(f"{noun} to be loaded", self._hindrances), name=f"{noun}-waits")
                try:
                    await self._follow_leaderships()
                finally:
                    self._tasks = None
        finally:
            await self._views.close()

    def leader_of(self, owner: str, listener: str | None = None) -> tuple[BrokerId, Endpoint]:
        """Return the node that coordinates an id, and request the internal topic if it does not exist.

        The address is that of the node's listener of this name, or its gRPC endpoint if ``listener`` is None.

        Raises:
            TidelogError: COORDINATOR_NOT_AVAILABLE, or the error of an id that no record can have.
        """
        self._kind.check_id(owner)
        image = self._metadata.image
        topic = image.topics.get(self._topic)
        if topic is None:
            self._topic_creator.want([self._topic])
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._why_not_created())
        index = partition_for(owner, len(topic.partitions))
        leader = topic.partitions[index].leader
        broker = image.brokers.get(leader)
        if broker is None or broker.fenced:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._topic}-{index} has no leader now")
        endpoint = broker.endpoint if listener is None else broker.endpoint_on(listener)
        if endpoint is None:
            text = f"node {leader}, which leads {self._topic}-{index}, has no listener {listener}"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return leader, endpoint

    def want_topic(self, name: str) -> None:
        """Request the creation of an internal topic in the background."""
        self._topic_creator.want([name])

    def shard_of(self, owner: str) -> int:
        """Return the partition of the internal topic that an id belongs to.

        Raises:
            TidelogError: NOT_COORDINATOR if the topic does not exist, or the error of an id that no record can have.
        """
        self._kind.check_id(owner)
        topic = self._metadata.image.topics.get(self._topic)
        if topic is None:
            raise error_for(ErrorCode.NOT_COORDINATOR, f"there is no topic {self._topic}: ask who the coordinator is")
        return partition_for(owner, len(topic.partitions))

    async def end_transaction(
        self, shard: int, batch: bytes, producer_id: int, transaction_version: int, *, committed: bool
    ) -> None:
        """Append a transaction's marker to a shard, and wait until it is committed and has taken effect.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; the errors of the append.
        """
        driver = self._driver(shard)
        await driver.end_transaction(batch, producer_id, transaction_version, committed=committed)

    def has_coordinated(self, owner: str) -> bool:
        """Return whether this node coordinates the id, or did until less than ``moved_ms`` ago.

        Clients may not know the new coordinator yet.
        """
        try:
            index = self.shard_of(owner)
        except TidelogError:
            return False
        if index in self._drivers:
            return True
        ended_ms = self._ended_ms.get(index)
        return ended_ms is not None and self._clock.monotonic_ms() - ended_ms < self._moved_ms

    @property
    def is_coordinating(self) -> bool:
        """True if this node coordinates a shard."""
        return self._tasks is not None and bool(self._drivers)

    @property
    def load_times(self) -> Histogram:
        """The times of loading shards."""
        return self._environment.load_times

    def cores(self) -> list[ShardCore[RequestT, ResponseT, NewsT, CommandT] | None]:
        """Return the shards that this node leads, None for one that is loading."""
        return [driver.core for driver in self._drivers.values() if driver.is_leading]

    def shards(self) -> list[int]:
        """Return the shards that this node leads, including those that are loading."""
        self._follow_registry()
        return sorted(index for index, driver in self._drivers.items() if driver.is_leading)

    async def call(self, shard: int, request: RequestT, client: ClientIdentity) -> ResponseT:
        """Return the answer of one shard.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        if self._tasks is None:
            text = f"this node's coordinator of {self._kind.noun} does not run"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        driver = self._driver(shard)
        with self._bounds.taking(request_bytes(request)):
            return await driver.call(request, client)

    def _driver(self, index: int) -> ShardDriver[RequestT, ResponseT, NewsT, CommandT]:
        driver = self._drivers.get(index)
        if driver is None or not driver.is_leading:
            self._follow_partition(index)
            driver = self._drivers.get(index)
        if driver is not None and driver.is_leading:
            return driver
        partition = self._partitions.get(self._topic, index)
        if partition is not None and partition.state.leader is not None:
            text = f"the {self._kind.noun} of {partition} wait for the metadata, or the end of an earlier term"
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        raise error_for(ErrorCode.NOT_COORDINATOR, f"this node does not lead {self._topic}-{index}")

    async def _follow_leaderships(self) -> None:
        image = self._metadata.image
        while True:
            self._follow_registry()
            image = await self._metadata.next_image(image)

    def _follow_registry(self) -> None:
        topic = self._metadata.image.topics.get(self._topic)
        for index in {*range(0 if topic is None else len(topic.partitions)), *self._drivers}:
            self._follow_partition(index)

    def _follow_partition(self, index: int) -> None:
        """Start a driver for a partition that this node leads, once an earlier driver has ended."""
        driver = self._drivers.get(index)
        if driver is not None:
            if not driver.is_leading:
                driver.wake(self._topic, index)
            return
        partition = self._partitions.get(self._topic, index)
        leader = None if partition is None else partition.state.leader
        if partition is None or leader is None or self._tasks is None or not self._is_published(partition, leader):
            return
        self._drivers[index] = driver = ShardDriver(partition, leader, self._kind, self._environment)
        task = self._tasks.create_task(driver.run(), name=f"{self._kind.noun}-{index}")
        task.add_done_callback(lambda _: self._ended(index))

    def _is_published(self, partition: Partition, leader: LeaderState) -> bool:
        """Return whether the published image has a leadership, which the partitions know before.

        It then has every topic that the former coordinators knew. In an older image, they would look like deleted ones.
        """
        topic = self._metadata.image.topics.get(partition.topic)
        if topic is None or topic.topic_id != partition.topic_id:
            return False
        registration = topic.partitions.get(partition.index)
        return registration is not None and registration.leader_epoch >= leader.leader_epoch

    def _ended(self, index: int) -> None:
        del self._drivers[index]
        self._ended_ms[index] = self._clock.monotonic_ms()
        self._follow_partition(index)

    def _hindrances(self) -> dict[Hashable, str]:
        reasons = ((driver, driver.hindrance) for driver in self._drivers.values())
        return {driver: reason for driver, reason in reasons if reason is not None}

    async def _tell_news(self) -> None:
        image = self._metadata.image
        while True:
            image = await self._metadata.next_image(image)
            for driver in self._drivers.values():
                driver.tell_news()
            await asyncio.sleep(_NEWS_INTERVAL_S)

    async def _forget_lost_shards(self) -> None:
        """Delete the shards of partitions of which this node no longer has a replica from the view."""
        image, known = self._metadata.image, None
        while True:
            image = await self._metadata.next_image(image)
            topic = image.topics.get(self._topic)
            if topic is known:
                continue
            known = topic
            with contextlib.suppress(ViewFailedError):
                # Users of the view also find it broken and replace it.
                self._forget_all_but(topic, await self._views.current())

    def _forget_all_but(self, topic: TopicImage | None, view: View) -> None:
        """Delete other shards from the view.

        No driver may begin meanwhile, since it could find a position without the records before it.
        """
        partitions = {} if topic is None else topic.partitions
        ours = {index for index, partition in partitions.items() if self._partitions.broker_id in partition.replicas}
        for name in view.shards():
            is_ours = topic is not None and name.topic_id == topic.topic_id and name.partition in ours
            if not is_ours and name.partition not in self._drivers:
                view.shard(name).clear()

    def _is_hosted(self, partition: Partition) -> bool:
        return self._partitions.get(partition.topic, partition.index) is partition

    def _why_not_created(self) -> str:
        failure = self._topic_creator.failure_of(self._topic)
        if failure is None:
            return f"{self._topic} is being created"
        return f"no {self._kind.noun} can be served without {self._topic}, which cannot be created: {failure}"
