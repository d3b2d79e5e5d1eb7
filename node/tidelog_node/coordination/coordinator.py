"""The group coordinator of a node: a shard of groups for each partition of __consumer_offsets that this node leads.

The partitions determine the shards: each metadata image and each call updates the drivers from them. A driver ends by
itself when its leadership ends, so a call never reaches a shard that this node does not lead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.waiting import watch_waits
from tidelog_node.coordination.calls import CallBounds
from tidelog_node.coordination.metadata import GroupTimings, GroupTopics
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC, partition_for
from tidelog_node.coordination.session_waits import SessionWaits
from tidelog_node.coordination.shard_driver import ShardCore, ShardDriver, ShardEnvironment
from tidelog_node.coordination.view import ViewFailedError
from tidelog_node.coordination.views import GroupViews, OpenView, View, open_group_view
from tidelog_node.event_loop import Clock
from tidelog_node.groups.events import ClientIdentity, GroupRequest, GroupResponse, TopicInfo
from tidelog_node.groups.limits import request_bytes
from tidelog_node.groups.messages import Coordinator, OffsetFetchGroup
from tidelog_node.groups.settings import OwnTimings
from tidelog_node.groups.store import GroupStore
from tidelog_node.groups.wire import MAX_STRING_BYTES
from tidelog_node.partitions import MetadataCache, Partition, PartitionRegistry
from tidelog_quorum.metadata.image import TopicImage

MAX_CALLS = 100_000
MAX_CALL_BYTES = 128 * 1024**2
MAX_SESSION_WAITS = 10_000
MOVED_MS = 15_000
"""The default of group.consumer.max.heartbeat.interval.ms.

Each member of the consumer protocol sends a heartbeat within it; members of the classic protocol send one every 3 s by
default.
"""
SESSION_WAIT_MS = 3_000
"""Half of the default minimum session timeout. Heartbeats on the same connection wait as well."""
_TOPICS_INTERVAL_S = 0.1
"""A limit on the rate of topic updates to groups, since images may arrive often."""


class TopicCreator(Protocol):
    """The background creation of topics."""

    def want(self, names: Iterable[str]) -> None:
        """Request the creation of topics in the background."""
        ...

    def failure_of(self, name: str) -> str | None:
        """Return the reason why an internal topic could not be created, or None."""
        ...


class GroupCoordinator:
    """One per node, on its event loop. ``run`` is its task. ``log_directories`` returns the online directories.

    ``has_session`` returns whether it is certain that no controller has given this node's leaderships to other nodes.
    """

    def __init__(
        self,
        partitions: PartitionRegistry,
        metadata: MetadataCache,
        topic_creator: TopicCreator,
        log_directories: Callable[[], list[Path]],
        new_core: Callable[[GroupStore], ShardCore],
        clock: Clock,
        compression: str = "none",
        commit_timeout_ms: int = 5_000,
        has_session: Callable[[], bool] = lambda: True,
        session_wait_ms: int = SESSION_WAIT_MS,
        moved_ms: int = MOVED_MS,
        open_view: OpenView = open_group_view,
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._moved_ms = moved_ms
        self._metadata = metadata
        self._topic_creator = topic_creator
        self._topics = GroupTopics()
        self._timings = GroupTimings()
        self._views = GroupViews(log_directories, open_view)
        self._environment = ShardEnvironment(
            self._views,
            clock,
            new_core,
            self._newest_topics,
            self._newest_timings,
            self._is_hosted,
            compression,
            commit_timeout_ms,
            has_session,
        )
        self._bounds = CallBounds(MAX_CALLS, MAX_CALL_BYTES)
        self._session_waits = SessionWaits(has_session, clock, session_wait_ms, MAX_SESSION_WAITS)
        self._drivers: dict[int, ShardDriver] = {}
        self._ended_ms: dict[int, int] = {}
        """The time at which this node last ceased to coordinate each shard, on the monotonic clock."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Coordinate until cancelled. Waiting calls are then answered with NOT_COORDINATOR."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._tell_topics(), name="group-topics")
                tasks.create_task(self._forget_lost_shards(), name="group-view-upkeep")
                tasks.create_task(watch_waits("groups to be loaded", self._hindrances), name="group-waits")
                try:
                    await self._follow_leaderships()
                finally:
                    self._tasks = None
                    self._session_waits.end()
        finally:
            await self._views.close()

    def coordinator_of(self, group_id: str, listener: str | None = None) -> Coordinator:
        """Return the coordinator of a group (FindCoordinator), and request __consumer_offsets if it does not exist.

        The address is that of the coordinator's listener of this name, or its gRPC endpoint if ``listener`` is None.
        """
        try:
            _check_length(group_id)
            broker_id, endpoint = self._leader_of(group_id, listener)
        except TidelogError as error:
            return Coordinator(group_id, error.detached())
        return Coordinator(group_id, None, broker_id, endpoint)

    def shard_of(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that a group belongs to.

        Raises:
            TidelogError: NOT_COORDINATOR if the topic does not exist, INVALID_GROUP_ID if the id is too long for a
                record.
        """
        _check_length(group_id)
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise error_for(ErrorCode.NOT_COORDINATOR, f"there is no topic {OFFSETS_TOPIC}: ask who the coordinator is")
        return partition_for(group_id, len(topic.partitions))

    def has_coordinated(self, group_id: str) -> bool:
        """Return whether this node coordinates the group, or did until less than ``moved_ms`` ago.

        Members may not know the new coordinator yet; each learns of it with its next heartbeat.
        """
        try:
            index = self.shard_of(group_id)
        except TidelogError:
            return False
        if index in self._drivers:
            return True
        ended_ms = self._ended_ms.get(index)
        return ended_ms is not None and self._clock.monotonic_ms() - ended_ms < self._moved_ms

    def shards(self) -> list[int]:
        """Return the shards that this node leads, including those that are loading."""
        self._follow_registry()
        return sorted(index for index, driver in self._drivers.items() if driver.is_leading)

    async def wait_for_session(self) -> None:
        """Wait until the node may return committed offsets, for SESSION_WAIT_MS at most.

        A node that coordinates no group does not wait, so that clients are sent to the coordinator at once.
        """
        if self._tasks is not None and self._drivers:
            await self._session_waits.wait()

    async def call(self, shard: int, request: GroupRequest, client: ClientIdentity) -> GroupResponse:
        """Return the answer of one shard.

        OffsetFetch never fails with COORDINATOR_NOT_AVAILABLE. librdkafka does not retry after it, and the consumer
        would wait forever for the offsets of its partitions. It retries after COORDINATOR_LOAD_IN_PROGRESS, unless its
        assignment has changed since the request. Callers therefore first call :meth:`wait_for_session`.

        Raises:
            TidelogError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        try:
            return await self._call(shard, request, client)
        except TidelogError as error:
            if isinstance(request, OffsetFetchGroup) and error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            raise

    async def _call(self, shard: int, request: GroupRequest, client: ClientIdentity) -> GroupResponse:
        if self._tasks is None:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node's group coordinator does not run")
        driver = self._driver(shard)
        with self._bounds.taking(request_bytes(request)):
            return await driver.call(request, client)

    def _driver(self, index: int) -> ShardDriver:
        driver = self._drivers.get(index)
        if driver is None or not driver.is_leading:
            self._follow_partition(index)
            driver = self._drivers.get(index)
        if driver is not None and driver.is_leading:
            return driver
        partition = self._partitions.get(OFFSETS_TOPIC, index)
        if partition is not None and partition.state.leader is not None:
            text = f"the groups of {partition} wait for the end of an earlier term of this node"
            raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
        raise error_for(ErrorCode.NOT_COORDINATOR, f"this node does not lead {OFFSETS_TOPIC}-{index}")

    async def _follow_leaderships(self) -> None:
        image = self._metadata.image
        while True:
            self._follow_registry()
            image = await self._metadata.next_image(image)

    def _follow_registry(self) -> None:
        topic = self._metadata.image.topics.get(OFFSETS_TOPIC)
        for index in {*range(0 if topic is None else len(topic.partitions)), *self._drivers}:
            self._follow_partition(index)

    def _follow_partition(self, index: int) -> None:
        """Start a driver for a partition that this node leads, once an earlier driver has ended."""
        driver = self._drivers.get(index)
        if driver is not None:
            if not driver.is_leading:
                driver.wake(OFFSETS_TOPIC, index)
            return
        partition = self._partitions.get(OFFSETS_TOPIC, index)
        leader = None if partition is None else partition.state.leader
        if partition is None or leader is None or self._tasks is None:
            return
        self._drivers[index] = driver = ShardDriver(partition, leader, self._environment)
        task = self._tasks.create_task(driver.run(), name=f"groups-{index}")
        task.add_done_callback(lambda _: self._ended(index))

    def _ended(self, index: int) -> None:
        del self._drivers[index]
        self._ended_ms[index] = self._clock.monotonic_ms()
        self._follow_partition(index)

    def _hindrances(self) -> dict[Hashable, str]:
        reasons = ((driver, driver.hindrance) for driver in self._drivers.values())
        return {driver: reason for driver, reason in reasons if reason is not None}

    async def _tell_topics(self) -> None:
        image = self._metadata.image
        while True:
            image = await self._metadata.next_image(image)
            for driver in self._drivers.values():
                driver.tell_topics()
                driver.tell_timings()
            await asyncio.sleep(_TOPICS_INTERVAL_S)

    async def _forget_lost_shards(self) -> None:
        """Delete the shards of partitions of which this node no longer has a replica from the view."""
        image, known = self._metadata.image, None
        while True:
            image = await self._metadata.next_image(image)
            topic = image.topics.get(OFFSETS_TOPIC)
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

    def _newest_topics(self) -> Mapping[str, TopicInfo]:
        self._topics.follow(self._metadata.image)
        return self._topics.current

    def _newest_timings(self) -> Mapping[str, OwnTimings]:
        self._timings.follow(self._metadata.image)
        return self._timings.current

    def _is_hosted(self, partition: Partition) -> bool:
        return self._partitions.get(partition.topic, partition.index) is partition

    def _why_not_created(self) -> str:
        failure = self._topic_creator.failure_of(OFFSETS_TOPIC)
        if failure is None:
            return f"{OFFSETS_TOPIC} is being created"
        return f"no group can be served without {OFFSETS_TOPIC}, which cannot be created: {failure}"

    def _leader_of(self, group_id: str, listener: str | None) -> tuple[BrokerId, Endpoint]:
        image = self._metadata.image
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            self._topic_creator.want([OFFSETS_TOPIC])
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, self._why_not_created())
        index = partition_for(group_id, len(topic.partitions))
        leader = topic.partitions[index].leader
        broker = image.brokers.get(leader)
        if broker is None or broker.fenced:
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{index} has no leader now")
        endpoint = broker.endpoint if listener is None else broker.endpoint_on(listener)
        if endpoint is None:
            text = f"node {leader}, which leads {OFFSETS_TOPIC}-{index}, has no listener {listener}"
            raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        return leader, endpoint


def _check_length(group_id: str) -> None:
    if len(group_id) > MAX_STRING_BYTES:
        text = f"a group's id has {len(group_id)} characters, at most {MAX_STRING_BYTES} are possible"
        raise error_for(ErrorCode.INVALID_GROUP_ID, text)
