"""One cluster link on this node: it follows the source's metadata, fetches, and reports to the controller.

A topic has failed when the source has another topic of its name, or none for some time. The leader of its first
partition reports this, and the number of its partitions on the source.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.link_settings import LinkConfig
from tidelog_foundation.requests.links import (
    AlterMirrorTopicsRequest,
    ClusterLink,
    MirrorOperation,
    MirrorPartitionReport,
    MirrorState,
    ReportMirrorPartitionsRequest,
)
from tidelog_foundation.requests.request import Request
from tidelog_node.handlers.link_sources import SourceMetadata
from tidelog_node.kafka.client.source_cluster import SourceCluster
from tidelog_node.links.mirrors import FetchCounts, Mirror, SourceFetcher
from tidelog_node.links.node import LinkNode
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings
from tidelog_node.replication.mirroring import MirrorTerm, Step
from tidelog_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

_REFRESH_S: Final = 5.0
"""The interval at which the source's leaders and the numbers of partitions are read again."""
_PENDING_S: Final = 0.1
"""The interval at which promotions and raised epochs are checked."""
_RETRY_S: Final = 1.0
"""The interval of attempts to find the leader of a partition on the source."""
_REPORT_TIMEOUT_S: Final = 5.0
_MISSING_MS: Final = 10_000
"""The time without a topic on the source after which its mirror has failed."""
_LATEST: Final = -1
_COPIED: Final = (MirrorState.ACTIVE, MirrorState.PENDING_STOPPED)


class LinkWorker:
    """A link with given settings, run by the task :meth:`run`."""

    def __init__(
        self,
        link: ClusterLink,
        config: LinkConfig,
        source: SourceCluster,
        node: LinkNode,
        broker_epoch: Callable[[], BrokerEpoch],
        settings: FetcherSettings,
    ) -> None:
        self.link = link
        self.config = config
        self.source = source
        self.counts = FetchCounts()
        self.source_metadata: SourceMetadata | None = None
        """The source's last answer."""
        self.mirrors: dict[tuple[TopicId, int], Mirror] = {}
        self._node = node
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._fetchers: dict[BrokerId, SourceFetcher] = {}
        self._woken = asyncio.Event()
        self._missing_since_ms: dict[str, int] = {}

    async def run(self) -> None:
        """Mirror until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_images(), name=f"link-{self.link.name}-images")
                await self._follow_source(tasks)
        finally:
            self.source.close()

    def wake(self) -> None:
        """Read the source's metadata and send reports soon."""
        self._woken.set()

    async def _follow_images(self) -> None:
        image = None
        while True:
            image = self._node.metadata.image if image is None else await self._node.metadata.next_image(image)
            self._follow(image)

    def _follow(self, image: MetadataImage) -> None:
        """Mirror what this node leads by the image, each partition in its present leader epoch."""
        copied = {
            topic_id: mirror.state
            for topic_id, mirror in image.mirror_topics.items()
            if mirror.link_id == self.link.link_id and mirror.state in _COPIED
        }
        before, self.mirrors = self.mirrors, {}
        for partition in self._node.partitions if copied or before else ():
            leader = partition.state.leader
            if leader is None or not leader.is_mirror or partition.topic_id not in copied:
                continue
            key = partition.topic_id, partition.index
            known = before.get(key)
            if known is None or known.partition is not partition or not known.is_current:
                known = Mirror(partition, MirrorTerm(leader.leader_epoch))
            if copied[partition.topic_id] is not MirrorState.PENDING_STOPPED:
                known.is_drained = False
            self.mirrors[key] = known
        if self.mirrors.keys() != before.keys() or any(before[k] is not m for k, m in self.mirrors.items()):
            self._learn_leaders()
            self._wake_fetchers()
        self.wake()

    async def _follow_source(self, tasks: asyncio.TaskGroup) -> None:
        read_ms = None
        while True:
            was_woken = self._woken.is_set()
            self._woken.clear()
            now_ms = self._node.clock.monotonic_ms()
            interval_s = _REFRESH_S
            if any(m.source is None or m.error is not None for m in self.mirrors.values()):
                interval_s = _PENDING_S if was_woken else _RETRY_S
            if self.mirrors and (read_ms is None or now_ms - read_ms >= interval_s * 1000):
                read_ms = now_ms
                await self._read_metadata(tasks)
            await self._report()
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._woken.wait()
            except TimeoutError:
                pass
            else:
                # Many fetches may fail at once.
                await asyncio.sleep(_PENDING_S / 2)

    def _pause_s(self) -> float:
        """Return the time until the next look at the mirrors, unless something wakes the link."""
        mirrors = self.mirrors.values()
        if self._pending_topics() or any(m.term.next_step is Step.RAISE_EPOCH for m in mirrors):
            return _PENDING_S
        is_failing = any(m.error is not None or m.term.next_step is Step.AWAIT_SOURCE for m in mirrors)
        return _RETRY_S if is_failing else _REFRESH_S

    async def _read_metadata(self, tasks: asyncio.TaskGroup) -> None:
        topics = {mirror.partition.topic for mirror in self.mirrors.values()}
        try:
            self.source_metadata = await self.source.metadata(topics)
        except TidelogError as error:
            self._fail(error)
            return
        if self.source_metadata.cluster_id != self.link.source_cluster_id:
            found, expected = self.source_metadata.cluster_id, self.link.source_cluster_id
            self.source_metadata = None
            self._fail(TidelogError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"the source is {found}, not {expected}"))
            return
        for broker_id in self.source_metadata.brokers:
            if broker_id not in self._fetchers:
                fetcher = SourceFetcher(
                    broker_id,
                    self.source,
                    self._address,
                    lambda: self.mirrors.values(),
                    self._settings,
                    self._node.clock,
                    self.counts,
                    self.wake,
                )
                self._fetchers[broker_id] = fetcher
                tasks.create_task(fetcher.run(), name=f"link-{self.link.name}-fetcher-{broker_id}")
        self._learn_leaders()
        self._wake_fetchers()
        await self._check_topics(self.source_metadata)

    def _learn_leaders(self) -> None:
        if self.source_metadata is None:
            return
        for (topic_id, index), mirror in self.mirrors.items():
            topic = self.source_metadata.topics.get(mirror.partition.topic)
            if topic is not None and topic.topic_id == topic_id:
                mirror.learn_source(topic.partitions.get(index))

    async def _check_topics(self, found: SourceMetadata) -> None:
        """Report topics that the source does not have any more."""
        now_ms, failed = self._node.clock.monotonic_ms(), []
        for (topic_id, index), mirror in self.mirrors.items():
            name = mirror.partition.topic
            if index:
                continue
            topic, error = found.topics.get(name), found.errors.get(name)
            if error is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                since_ms = self._missing_since_ms.setdefault(name, now_ms)
                if now_ms - since_ms >= _MISSING_MS:
                    failed.append(name)
                continue
            self._missing_since_ms.pop(name, None)
            if topic is not None and topic.topic_id != topic_id:
                failed.append(name)
        if failed:
            logger.error("The source of link %s has no such topics any more: %s", self.link.name, ", ".join(failed))
            request = AlterMirrorTopicsRequest(MirrorOperation.FAIL, tuple(failed))
            await self._ask_quietly(request)

    def _pending_topics(self) -> frozenset[TopicId]:
        image = self._node.metadata.image
        return frozenset(
            topic_id
            for topic_id, mirror in image.mirror_topics.items()
            if mirror.link_id == self.link.link_id and mirror.state is MirrorState.PENDING_STOPPED
        )

    async def _report(self) -> None:
        """Report what the controller must know."""
        await self._find_drained()
        reports = []
        for (topic_id, index), mirror in self.mirrors.items():
            if not mirror.is_current:
                continue
            needs_epoch = mirror.term.next_step is Step.RAISE_EPOCH
            count = 0 if index else self._partition_count(mirror)
            if needs_epoch or mirror.is_drained or count:
                epochs = mirror.term.leader_epoch, mirror.term.least_epoch
                reports.append(MirrorPartitionReport(topic_id, index, *epochs, mirror.is_drained, count))
        if reports:
            await self._ask_quietly(
                ReportMirrorPartitionsRequest(self._node.broker_id, self._broker_epoch(), tuple(reports))
            )

    def _partition_count(self, mirror: Mirror) -> int:
        """Return the number of the topic's partitions on the source if this cluster has fewer of them, or 0."""
        name = mirror.partition.topic
        topic = None if self.source_metadata is None else self.source_metadata.topics.get(name)
        own = self._node.metadata.image.topics.get(name)
        if topic is None or own is None or topic.topic_id != mirror.partition.topic_id:
            return 0
        return len(topic.partitions) if len(topic.partitions) > len(own.partitions) else 0

    async def _find_drained(self) -> None:
        """Compare the high watermarks of topics in promotion with the ends of their sources."""
        pending = self._pending_topics()
        by_broker: dict[BrokerId, list[Mirror]] = {}
        for (topic_id, _), mirror in self.mirrors.items():
            is_ready = mirror.term.next_step is Step.FETCH and mirror.source is not None
            if topic_id in pending and is_ready and not mirror.is_drained:
                assert mirror.source is not None
                by_broker.setdefault(mirror.source.broker_id, []).append(mirror)
        for broker_id, mirrors in by_broker.items():
            address = self._address(broker_id)
            if address is not None:
                await self._compare_ends(address, mirrors)

    async def _compare_ends(self, address: str, mirrors: list[Mirror]) -> None:
        epochs: dict[tuple[str, int], LeaderEpoch] = {}
        for mirror in mirrors:
            assert mirror.source is not None
            epochs[mirror.partition.topic, mirror.partition.index] = mirror.source.leader_epoch
        try:
            ends: Mapping[tuple[str, int], int] = await self.source.list_offsets(address, epochs, _LATEST)
        except TidelogError as error:
            logger.warning("The source of link %s does not name the ends of its logs: %s", self.link.name, error)
            return
        for mirror in mirrors:
            end = ends.get((mirror.partition.topic, mirror.partition.index))
            if end is not None and mirror.is_current:
                mirror.source_high_watermark = max(mirror.source_high_watermark, end)
                mirror.is_drained = mirror.partition.high_watermark >= end

    async def _ask_quietly(self, request: Request[Any]) -> None:
        try:
            await self._node.controller.ask(request, _REPORT_TIMEOUT_S)
        except TidelogError as error:
            logger.warning("A report of link %s failed, retrying: %s", self.link.name, error)

    def _address(self, broker_id: BrokerId) -> str | None:
        return None if self.source_metadata is None else self.source_metadata.brokers.get(broker_id)

    def _fail(self, error: TidelogError) -> None:
        for mirror in self.mirrors.values():
            mirror.fail(error, self._node.clock.monotonic_ms(), self._settings.max_backoff_ms)

    def _wake_fetchers(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.changed.set()
