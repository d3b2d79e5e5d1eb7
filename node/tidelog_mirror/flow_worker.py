"""One flow's tasks: topics, settings, ACLs, copying, offset syncs, checkpoints, groups' offsets and heartbeats.

Each task repeats its work at its interval, and sooner after a failure. Failures are logged and counted; none ends the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_mirror.checkpoints import Checkpoints
from tidelog_mirror.cluster import MirrorCluster, PartitionKey
from tidelog_mirror.copying import FlowCopier
from tidelog_mirror.internal_records import (
    Checkpoint,
    MalformedRecordError,
    OffsetSync,
    decode_checkpoint,
    decode_offset_sync,
    encode_heartbeat,
)
from tidelog_mirror.internal_topics import InternalAppender, create_compacted, read_topic
from tidelog_mirror.offset_syncs import OffsetSyncStore
from tidelog_mirror.patterns import NameFilter
from tidelog_mirror.policy import HEARTBEATS
from tidelog_mirror.settings import SOURCE, Flow
from tidelog_mirror.topic_plan import Setting, plan_acls, plan_settings, plan_topics

logger = logging.getLogger(__name__)
_RETRY_S: Final = 2.0
_PROGRESS_S: Final = 60.0
_OF_CONSUMERS: Final = ("consumer", "")


class FlowWorker:
    """A flow from :meth:`run` to :meth:`stop`."""

    def __init__(self, flow: Flow, source: MirrorCluster, target: MirrorCluster) -> None:
        self.flow = flow
        self._config = flow.config
        self._selection = flow.selection
        self._source = source
        self._target = target
        self._on_source = flow.config.offset_syncs_topic_location == SOURCE
        syncs_cluster = source if self._on_source else target
        self._syncs_cluster = syncs_cluster
        self._syncs_appender = InternalAppender(syncs_cluster)
        self._target_appender = InternalAppender(target)
        self._pending_syncs: dict[PartitionKey, list[OffsetSync]] = {}
        """The first and the latest sync of each partition that are not written yet."""
        self._has_syncs = asyncio.Event()
        self._topics: dict[str, int] = {}
        """The partitions of the copied topics, by their names on the source."""
        self._has_topics = asyncio.Event()
        self._groups: list[str] = []
        self._warned_acls = False
        self._stopping = asyncio.Event()
        self._has_checkpoints = asyncio.Event()
        self._heartbeat_appender = InternalAppender(target)
        self.copier = FlowCopier(flow, source, target, self._add_sync)
        self.syncs = OffsetSyncStore()
        self.checkpoints = Checkpoints()
        self.failures = 0
        self.checkpoint_count = 0
        self.heartbeat_count = 0

    async def run(self) -> None:
        """Work until :meth:`stop`, then finish what is being written."""
        main = asyncio.create_task(self._main(), name=f"mirror-copy-{self.flow.name}")
        tasks = [main, *(asyncio.create_task(each, name=f"mirror-{self.flow.name}") for each in self._duties())]
        try:
            while not main.done():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    tasks.remove(task)
                    task.result()
        finally:
            main.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait([main, *tasks])

    @property
    def is_ready(self) -> bool:
        """True once the flow's topics are known."""
        return self._has_topics.is_set() or not self._config.enabled

    def stop(self) -> None:
        """End the flow after the present round of writes."""
        self._stopping.set()
        self.copier.stop()

    async def _main(self) -> None:
        if not self._config.enabled:
            await self._stopping.wait()
            return
        logger.info("%s: copies topics %s", self.flow.name, ", ".join(self._config.topics))
        await self.copier.run()
        with contextlib.suppress(TidelogError):
            await self._write_syncs()

    def _duties(self) -> Iterator[Coroutine[None, None, None]]:
        config = self._config
        if config.emit_heartbeats_enabled:
            yield self._repeat(self._heartbeat, config.emit_heartbeats_interval_seconds, self._create_heartbeats)
        if not config.enabled:
            return
        yield self._repeat(
            self._refresh_topics, config.refresh_topics_interval_seconds, once=not config.refresh_topics_enabled
        )
        yield self._report_progress()
        if config.sync_topic_configs_enabled:
            yield self._repeat(self._sync_settings, config.sync_topic_configs_interval_seconds, self._has_topics.wait)
        if config.sync_topic_acls_enabled:
            yield self._repeat(self._sync_acls, config.sync_topic_acls_interval_seconds, self._has_topics.wait)
        if config.emit_offset_syncs_enabled:
            yield self._follow_syncs()
            if config.emit_checkpoints_enabled or config.sync_group_offsets_enabled:
                yield from self._group_duties()

    def _group_duties(self) -> Iterator[Coroutine[None, None, None]]:
        config = self._config
        yield self._repeat(
            self._refresh_groups, config.refresh_groups_interval_seconds, once=not config.refresh_groups_enabled
        )
        yield self._repeat(self._emit_checkpoints, config.emit_checkpoints_interval_seconds, self._load_stores)
        if config.sync_group_offsets_enabled:
            yield self._repeat(
                self._sync_group_offsets, config.sync_group_offsets_interval_seconds, self._has_checkpoints.wait
            )

    async def _repeat(
        self,
        work: Callable[[], Awaitable[object]],
        interval_s: float,
        prepare: Callable[[], Awaitable[object]] | None = None,
        *,
        once: bool = False,
    ) -> None:
        """Prepare, then work at an interval, from the start on. What fails is tried again soon."""
        is_prepared = prepare is None
        while True:
            try:
                if prepare is not None and not is_prepared:
                    await prepare()
                    is_prepared = True
                await work()
            except (TidelogError, MalformedRecordError) as error:
                self.failures += 1
                logger.warning("%s: %s: %s", self.flow.name, work.__name__.strip("_").replace("_", " "), error)
                await asyncio.sleep(min(_RETRY_S, interval_s or _RETRY_S))
                continue
            if once:
                return
            await asyncio.sleep(interval_s)

    async def _report_progress(self) -> None:
        former = 0
        while True:
            await asyncio.sleep(_PROGRESS_S)
            copies = self.copier.reader.partitions.values()
            records = sum(copy.record_count for copy in copies)
            if records != former:
                lag = sum(copy.lag for copy in copies)
                rate = (records - former) / _PROGRESS_S
                logger.info("%s: %.0f records/s, %d records behind the source", self.flow.name, rate, lag)
                former = records

    async def _create_heartbeats(self) -> None:
        await create_compacted(self._target, HEARTBEATS, 1, self._config.heartbeats_topic_replication_factor)

    async def _heartbeat(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        pair = encode_heartbeat(self.flow.source, self.flow.target, now_ms)
        await self._heartbeat_appender.append(HEARTBEATS, {0: [pair]}, now_ms)
        self.heartbeat_count += 1

    async def _refresh_topics(self) -> None:
        """Find topics and partitions, create them on the target, and copy them."""
        on_source = (await self._source.describe()).counts
        on_target = (await self._target.describe()).counts
        changes = plan_topics(self._selection, on_source, on_target)
        names = {self._selection.remote(topic): topic for topic in on_source if self._selection.copies(topic)}
        settings = await self._source.settings(names[remote] for remote in changes.created) if changes.created else {}
        ready = dict(on_target)
        for remote, count in changes.created.items():
            wanted = self._changes_of(settings.get(names[remote], []), {})
            if await self._try(f"creation of topic {remote}", self._create(remote, count, wanted)):
                ready[remote] = count
        for remote, count in changes.extended.items():
            if await self._try(f"partitions of topic {remote}", self._target.add_partitions(remote, count)):
                ready[remote] = count
                logger.info("%s: topic %s has %d partitions now", self.flow.name, remote, count)
        topics = {topic: on_source[topic] for remote, topic in names.items() if remote in ready}
        if topics != self._topics or not self._has_topics.is_set():
            partitions = sum(topics.values())
            logger.info("%s: %d topics with %d partitions", self.flow.name, len(topics), partitions)
        self._topics = topics
        self.copier.assign(
            {
                (topic, index): self._selection.remote(topic)
                for topic, count in topics.items()
                for index in range(min(count, ready[self._selection.remote(topic)]))
            }
        )
        self._has_topics.set()

    async def _create(self, remote: str, count: int, settings: Mapping[str, str | None]) -> None:
        """Create a remote topic. Settings that the target does not have are left out."""
        factor = self._config.replication_factor
        try:
            await self._target.create_topic(remote, count, factor, settings)
        except TidelogError as error:
            if error.code is not ErrorCode.INVALID_CONFIG:
                raise
            logger.warning("%s: %s; topic %s has the target's settings", self.flow.name, error, remote)
            await self._target.create_topic(remote, count, factor, {})
        logger.info("%s: created topic %s with %d partitions", self.flow.name, remote, count)

    async def _sync_settings(self) -> None:
        remotes = {topic: self._selection.remote(topic) for topic in self._topics}
        if not remotes:
            return
        on_source = await self._source.settings(remotes)
        on_target = await self._target.settings(remotes.values())
        for topic, remote in remotes.items():
            if topic not in on_source or remote not in on_target:
                continue
            own = {s.name: s.value for s in on_target[remote] if not s.is_default and s.value is not None}
            changes = self._changes_of(on_source[topic], own)
            if changes:
                await self._try(f"settings of topic {remote}", self._target.change_settings(remote, changes))

    def _changes_of(self, on_source: Sequence[Setting], own_on_target: Mapping[str, str]) -> dict[str, str | None]:
        excluded = NameFilter(self._config.config_properties_exclude)
        has_defaults = self._config.use_defaults_from == SOURCE
        return plan_settings(on_source, own_on_target, excluded, has_source_defaults=has_defaults)

    async def _sync_acls(self) -> None:
        try:
            wanted = plan_acls(self._selection, await self._source.topic_acls())
            if wanted:
                await self._target.create_acls(wanted)
        except TidelogError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            if not self._warned_acls:
                logger.info("%s: a cluster has no authorizer, ACLs are not copied", self.flow.name)
            self._warned_acls = True

    def _add_sync(self, sync: OffsetSync) -> None:
        pending = self._pending_syncs.setdefault((sync.topic, sync.partition), [])
        pending[1:] = [sync] if pending else []
        if not pending:
            pending.append(sync)
        self._has_syncs.set()

    async def _follow_syncs(self) -> None:
        """Write offset syncs as they arise, the latest of each partition."""
        await self._repeat(self._write_syncs, 0, self._create_syncs)

    async def _create_syncs(self) -> None:
        factor = self._config.offset_syncs_topic_replication_factor
        await create_compacted(self._syncs_cluster, self._syncs_topic, 1, factor)

    async def _write_syncs(self) -> None:
        if not self._stopping.is_set():
            await self._has_syncs.wait()
        self._has_syncs.clear()
        syncs = [sync for pending in self._pending_syncs.values() for sync in pending]
        if not syncs:
            return
        former, self._pending_syncs = self._pending_syncs, {}
        try:
            pairs = [sync.encode() for sync in syncs]
            await self._syncs_appender.append(self._syncs_topic, {0: pairs}, time.time_ns() // 1_000_000)
        except TidelogError:
            self._pending_syncs = {**former, **self._pending_syncs}
            self._has_syncs.set()
            raise
        for sync in syncs:
            self.syncs.add(sync)

    @property
    def _syncs_topic(self) -> str:
        other = self.flow.target if self._on_source else self.flow.source
        return self._config.policy.offset_syncs_topic(other)

    @property
    def _checkpoints_topic(self) -> str:
        return self._config.policy.checkpoints_topic(self.flow.source)

    async def _load_stores(self) -> None:
        """Read checkpoints, then offset syncs."""
        await create_compacted(
            self._target, self._checkpoints_topic, 1, self._config.checkpoints_topic_replication_factor
        )
        await self._create_syncs()
        checkpoints, syncs = Checkpoints(), OffsetSyncStore()
        async for key, value in read_topic(self._target, self._checkpoints_topic):
            if value is not None:
                checkpoints.add(decode_checkpoint(key, value))
        async for key, value in read_topic(self._syncs_cluster, self._syncs_topic):
            if value is not None:
                syncs.add(decode_offset_sync(key, value))
        # Syncs written meanwhile are in the topic, and are added to the present store after this.
        syncs.is_loaded = True
        self.checkpoints, self.syncs = checkpoints, syncs
        self._has_checkpoints.set()

    async def _refresh_groups(self) -> None:
        groups = await self._source.list_groups()
        wanted = self._config.group_filter
        self._groups = [name for name, g in groups.items() if g.protocol_type in _OF_CONSUMERS and wanted.matches(name)]

    async def _emit_checkpoints(self) -> None:
        found: list[Checkpoint] = []
        for group in self._groups:
            committed = await self._source.group_offsets(group)
            own = {key: value for key, value in committed.items() if self._selection.copies(key[0])}
            found += self.checkpoints.due(group, own, self.syncs, self._selection.checkpoint_topic)
        if not found:
            return
        if self._config.emit_checkpoints_enabled:
            pairs = [checkpoint.encode() for checkpoint in found]
            now_ms = time.time_ns() // 1_000_000
            await self._target_appender.append(self._checkpoints_topic, {0: pairs}, now_ms)
        for checkpoint in found:
            self.checkpoints.add(checkpoint)
        self.checkpoint_count += len(found)

    async def _sync_group_offsets(self) -> None:
        on_target = await self._target.list_groups()
        for group in self.checkpoints.groups:
            if group not in self._groups or (group in on_target and on_target[group].has_members):
                continue
            # A list can lack a group whose coordinator has just moved. Its offsets must not go back for that.
            own = {key: value.offset for key, value in (await self._target.group_offsets(group)).items()}
            wanted = self.checkpoints.offsets_to_commit(group, own)
            if wanted:
                await self._try(f"offsets of group {group}", self._target.commit(group, wanted))

    async def _try(self, what: str, work: Awaitable[object]) -> bool:
        """Do a part of a task, and return whether it succeeded. The other parts go on."""
        try:
            await work
        except TidelogError as error:
            self.failures += 1
            logger.warning("%s: %s: %s", self.flow.name, what, error)
            return False
        return True
