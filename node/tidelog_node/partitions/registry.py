"""The partitions that this node holds, kept as the metadata says: opened, led, followed, closed, deleted.

``apply`` runs for one image after the other. What it does to one partition is a single step on the event loop;
opening and deleting logs happens in a thread, so a topic of many partitions holds nobody up.

A log directory that fails takes its replicas with it: they are neither led nor followed here until the next start, and
answer KAFKA_STORAGE_ERROR; the controller is told, and the other directories go on (KIP-112, KIP-858). A replica whose
own files cannot be used though its disk has not failed goes offline alone, and is tried again. Two rules keep records
from being lost beyond that: no replica is created anew while its log may be in a directory that is offline, and none at
all that is the last in-sync one while the directory that had it is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import LOST_DIRECTORY, BrokerId, TopicId
from tidelog_node.log import LogDirectory, PartitionLog
from tidelog_node.log.disk_errors import is_directory_failure, is_disk_failure
from tidelog_node.partitions.brokers import brokers_of
from tidelog_node.partitions.checkpoints import Checkpoints
from tidelog_node.partitions.clock import Clock
from tidelog_node.partitions.condemned_folders import CondemnedFolders
from tidelog_node.partitions.descriptions import LogDirectoryDescription, describe
from tidelog_node.partitions.directory_assignments import DirectoryAssignments
from tidelog_node.partitions.fetcher_pool import FetcherPool
from tidelog_node.partitions.foundings import Foundings
from tidelog_node.partitions.full_disks import FullDisks
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.partitions.loading import FoundPartition, PartitionKey
from tidelog_node.partitions.log_directories import LogDirectories
from tidelog_node.partitions.node_effects import NodeEffects
from tidelog_node.partitions.offline_replicas import OfflineReplica, OfflineReplicas, last_state, restore
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.relocation import Relocations
from tidelog_node.partitions.replica_logs import ReplicaLogs, WantedLog
from tidelog_node.partitions.time_slices import TimeSlices
from tidelog_node.partitions.topic_configs import TopicConfigs
from tidelog_node.replication import PartitionState
from tidelog_node.replication.events import EligibleBrokersChanged
from tidelog_quorum.metadata import (
    MetadataDelta,
    MetadataImage,
    PartitionChange,
    PartitionRegistration,
    TopicConfig,
)

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_MANY_NEW = 64
"""So many new replicas in one step are worth it to create them before they are on the disk (see log.founding)."""
_CHANGES_AT_A_TIME = 512


class PartitionRegistry:
    """One per node. ``found`` are the logs of an earlier run, taken over when the first image names them.

    ``on_storage_failure`` is called when no log directory is left.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        directories: LogDirectories,
        found: dict[PartitionKey, FoundPartition],
        defaults: TopicConfig,
        replica_lag_time_max_ms: int,
        clock: Clock,
        on_storage_failure: Callable[[TidelogError], None],
        max_move_bytes_per_second: float = math.inf,
    ) -> None:
        self.broker_id = broker_id
        self.relocations = Relocations(
            directories.files, max_move_bytes_per_second, clock.wall_ms, self._note_moved, self.fail_directory
        )
        self._directories = directories
        self._logs = ReplicaLogs(directories, found, self.fail_directory)
        self.condemned = CondemnedFolders(directories, clock)
        self._configs = TopicConfigs(defaults)
        self._max_lag_ms = replica_lag_time_max_ms
        self._clock = clock
        self._on_storage_failure = on_storage_failure
        self._partitions: dict[PartitionKey, Partition] = {}
        self._offline = OfflineReplicas()
        self.checkpoints = Checkpoints(
            directories, self._partitions, self._logs, self._offline, self.relocations, self.fail_directory
        )
        self.foundings = Foundings(self._founding_failed)
        self._preferred: dict[PartitionKey, Path] = {}
        self._image = MetadataImage()
        self._brokers = EligibleBrokersChanged({}, {})
        self._effects = NodeEffects(self._storage_failed, self._step_back)
        self._full_disks = FullDisks(directories, self._effects)
        self._on_directory_failure: Callable[[], None] | None = None
        self._changing = asyncio.Lock()

    def connect(
        self,
        fetchers: FetcherPool,
        isr_changes: IsrChanges,
        assignments: DirectoryAssignments | None = None,
        on_directory_failure: Callable[[], None] | None = None,
    ) -> None:
        """Say who copies logs and who talks to the controller; once, before the first image."""
        self._effects.connect(fetchers, isr_changes, assignments)
        self._on_directory_failure = on_directory_failure

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        """Return a partition that this node holds, or None; None too when its directory is offline."""
        return self._partitions.get((topic, index))

    def check_online(self, topic: str, index: int) -> None:
        """Raise KAFKA_STORAGE_ERROR when this node holds a replica in a directory that is offline; else do nothing."""
        self._offline.check((topic, index), self.broker_id)

    def change_defaults(self, defaults: TopicConfig) -> None:
        """Take over the settings of topics that do not say; partitions get them with the next :meth:`apply`."""
        self._configs.change_defaults(defaults)

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Bring the partitions to the state of ``image``, which differs from the last one by ``delta``.

        Raises:
            ConfigError: two directories have the same partition, and the metadata does not say which one is right.
        """
        async with self._changing:
            self._image = image
            concerns_all = self._configs.follow(image)
            slices = TimeSlices()
            if delta.changed_brokers is not None:
                await self._change_eligible(image, slices)
            wanted: list[PartitionChange] = []
            for change in delta.changed_partitions:
                if change.after is not None and self.broker_id in change.after.replicas:
                    wanted.append(change)
                else:
                    is_gone = change.after is None
                    await self._remove((change.topic_name, change.index), change.topic_id, is_gone=is_gone)
                if slices.is_over:
                    await slices.give_way()
            # Before the ISRs: an ISR may count only by the min.insync.replicas that the controller went by (KIP-966).
            await self._change_configs(delta, slices, concerns_all=concerns_all)
            with self._effects.few_interruptions(len(wanted)):
                for start in range(0, len(wanted), _CHANGES_AT_A_TIME):
                    await self._ensure_all(wanted[start : start + _CHANGES_AT_A_TIME], slices)

    async def discard_unknown(self) -> None:
        """Set aside the logs of an earlier run that the first image does not name, and resume its moves."""
        await self._logs.set_aside_all()
        for directory in self._directories.online:
            try:
                await self.relocations.resume(directory, self._directories, self._partitions.get)
            except TidelogError as error:
                if is_directory_failure(error):
                    self.fail_directory(directory.path, error)
                else:
                    logger.error("Moves to %s go on after the next start: %s", directory.path, error.message)

    async def move(self, topic: str, partition: int, path: str) -> None:
        """Begin to move a replica to another of this node's log directories (AlterReplicaLogDirs, KIP-113).

        Returns when the move has begun; it goes on in the background and replaces an earlier one of the replica. A move
        to where the replica is ends one that is under way.

        Raises:
            TidelogError: LOG_DIR_NOT_FOUND, ``path`` is not in ``log.dirs``; KAFKA_STORAGE_ERROR, it or the replica's
                own directory is offline; REPLICA_NOT_AVAILABLE, this node has no replica of that partition: should it
                get one, it will be created there.
        """
        target, key = self._directories.find(path), (topic, partition)
        async with self._changing:
            self.check_online(*key)
            under_way = self.relocations.get(key)
            if under_way is not None and under_way.target is not target:
                await self.relocations.cancel(key)
            held = self._partitions.get(key)
            if held is None:
                self._preferred[key] = target.path
                text = f"node {self.broker_id} has no replica of {topic}-{partition}"
                raise error_for(ErrorCode.REPLICA_NOT_AVAILABLE, text)
            if held.log.directory.parent != target.path and self.relocations.get(key) is None:
                self.relocations.start(held, target)

    async def describe_log_dirs(self) -> list[LogDirectoryDescription]:
        """Return every directory of ``log.dirs`` with its replicas and the space of its file system (KIP-113, 827)."""
        return await describe(self._directories, self, self.relocations)

    async def retry_full(self) -> None:
        """Try every few seconds, until cancelled, what disks have refused: to grow, to open and to remove replicas."""
        while True:
            await asyncio.sleep(_RETRY_S)
            await self._full_disks.look()
            for key in self.condemned.refused():
                async with self._changing:
                    await self._condemn_refused(key)
            for key, offline in self._offline.retried():
                # One by one, so that an image need not wait for all of many.
                async with self._changing:
                    if self._offline.get(key) is offline:
                        await self._retry(key, offline)

    def fail_directory(self, path: Path, error: TidelogError) -> None:
        """Take a log directory offline with all replicas in it; a second call does nothing."""
        if not self._directories.fail(path, error):
            return
        self.relocations.abandon(path)
        for key, found in self._logs.drop_failed(path):
            self._offline.put(key, OfflineReplica(found.topic_id, error))
            self._offline.close_soon(found.log, error)
        held = [(key, p) for key, p in self._partitions.items() if p.log.directory.parent == path]
        for key, partition in held:
            self._take_offline(key, partition, OfflineReplica(partition.topic_id, error))
        text = "The log directory %s is offline until the next start, with its %d replicas: %s"
        logger.error(text, path, len(held), error.message)
        if not self._directories.online:
            self._on_storage_failure(error)
        elif self._on_directory_failure is not None:
            self._on_directory_failure()

    async def close(self) -> None:
        """Close every log, also when one cannot be closed, which takes its directory offline.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, no log directory is left.
        """
        with contextlib.suppress(TidelogError):
            await self.relocations.close()
        logs = [(p.log, p.close()) for p in self]
        logs += [(found.log, asyncio.to_thread(found.log.close)) for _, found in self._logs]
        outcomes = await asyncio.gather(*(closing for _, closing in logs), return_exceptions=True)
        for (log, _), outcome in zip(logs, outcomes, strict=True):
            if isinstance(outcome, TidelogError):
                self._close_failed(log, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        await self._offline.closed()
        for key, _ in self._offline.retried():
            self._directories.note_unclean(key)
        if not self._directories.online:
            raise next(iter(self._directories.failures.values()))

    def _storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """A log cannot be used: its directory is offline when the disk failed, else the replica, for a while."""
        if is_disk_failure(error):
            self.fail_directory(partition.log.directory.parent, error)
        else:
            self._refuse_for_a_while(partition, error)

    def _close_failed(self, log: PartitionLog, error: TidelogError) -> None:
        if is_disk_failure(error):
            self.fail_directory(log.directory.parent, error)
        else:
            logger.error("A log was not closed in order: %s", error.message)
            self._directories.note_unclean_in(log.directory.parent)

    def _step_back(self, partition: Partition, error: TidelogError) -> None:
        """A log cannot grow for want of space, but is as it was."""
        if self._partitions.get((partition.topic, partition.index)) is partition:
            self._full_disks.step_back(partition, error)

    def _founding_failed(self, partition: Partition, error: TidelogError) -> None:
        """As when a log cannot be created: tried again, unless the disk itself has failed."""
        if is_disk_failure(error):
            self.fail_directory(partition.log.directory.parent, error)
        else:
            self._refuse_for_a_while(partition, error)

    async def _change_eligible(self, image: MetadataImage, slices: TimeSlices) -> None:
        brokers = brokers_of(image)
        if brokers == self._brokers:
            return
        self._brokers = brokers
        for partition in self:
            partition.change_eligible(brokers)
            if slices.is_over:
                await slices.give_way()

    async def _ensure_all(self, changes: Sequence[PartitionChange], slices: TimeSlices) -> None:
        """Bring replicas to the state that the metadata has for them; many new ones are created together."""
        wanted = [
            WantedLog.of(change, self._configs.of(change.topic_name), self.broker_id)
            for change in changes
            if self._is_missing(change)
        ]
        if len(wanted) >= _MANY_NEW:
            await self._logs.create_ahead(wanted)
        for change in changes:
            assert change.after is not None
            await self._ensure((change.topic_name, change.index), change.topic_id, change.after)
            if slices.is_over:
                await slices.give_way()

    def _is_missing(self, change: PartitionChange) -> bool:
        key = (change.topic_name, change.index)
        return key not in self._partitions and self._offline.get(key) is None and key not in self._preferred

    async def _remove(self, key: PartitionKey, topic_id: TopicId, *, is_gone: bool) -> None:
        """Delete a replica: of a partition that is gone, or that others hold now."""
        partition = self._partitions.get(key)
        if partition is not None and partition.topic_id == topic_id:
            # It may be offline at the end of that.
            await self.relocations.cancel(key)
        offline = self._offline.get(key)
        if offline is not None and offline.topic_id == topic_id:
            await self._remove_offline(key, offline)
        partition = self._partitions.get(key)
        if partition is None or partition.topic_id != topic_id:
            return
        del self._partitions[key]
        self._full_disks.forget(partition)
        path, delay_ms = partition.log.directory, partition.log.config.file_delete_delay_ms
        try:
            self.condemned.add(await partition.delete(is_gone=is_gone), delay_ms)
        except TidelogError as error:
            self._condemn_failed(key, path.parent, delay_ms, error)
            return
        except asyncio.CancelledError:
            # The stop of the process: nobody closes this log in order any more.
            self._directories.note_unclean(key)
            raise
        self._directories.forget(path)
        logger.info("%s was removed from this node", partition)

    async def _remove_offline(self, key: PartitionKey, offline: OfflineReplica) -> None:
        """The folder of a replica that was offline for a while has its place still, which a new one may need."""
        self._offline.discard(key)
        directory = self._directories.holding(key) if offline.is_retried else None
        if directory is None:
            return
        await self._offline.closed()
        try:
            self.condemned.add(await asyncio.to_thread(self._directories.condemn, directory, key), 0)
        except TidelogError as error:
            self._condemn_failed(key, directory.path, 0, error)

    def _condemn_failed(self, key: PartitionKey, path: Path, delay_ms: int, error: TidelogError) -> None:
        """A replica's folder cannot be renamed: it keeps its name until it can, and no new replica has its place."""
        if is_disk_failure(error):
            self.fail_directory(path, error)
        else:
            logger.error("A deleted replica is in its place until it can be renamed: %s", error.message)
            self.condemned.refuse(key, path, delay_ms)

    async def _condemn_refused(self, key: PartitionKey) -> None:
        try:
            await self.condemned.retry(key)
        except TidelogError as error:
            if is_disk_failure(error):
                self.fail_directory(self.condemned.place_of(key), error)

    async def _ensure(self, key: PartitionKey, topic_id: TopicId, registration: PartitionRegistration) -> None:
        partition = self._partitions.get(key)
        if partition is None:
            offline = self._offline.get(key)
            if offline is None or offline.topic_id != topic_id:
                await self._open(key, topic_id, registration)
            return
        self._change_registration(key, partition, registration)

    def _change_registration(
        self, key: PartitionKey, partition: Partition, registration: PartitionRegistration
    ) -> None:
        """A role that the log cannot take is not taken: the replica is offline for a while."""
        try:
            partition.change_registration(registration)
        except TidelogError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            self._refuse_for_a_while(partition, error)
            return
        if self._full_disks.stays_back(partition, registration):
            return
        directory = self._directories.holding(key)
        if directory is not None and registration.directory_of(self.broker_id) == directory.id:
            self._full_disks.note_place(partition)
        elif directory is not None:
            self._assign(partition, directory)

    async def _open(self, key: PartitionKey, topic_id: TopicId, registration: PartitionRegistration) -> None:
        config = self._configs.of(key[0])
        before = self._offline.get(key)
        try:
            await self.condemned.retry(key)
            log, high_watermark = await self._logs.open(
                key,
                topic_id,
                config,
                registration.directory_of(self.broker_id),
                # One that is tried again was refused by the disk, not by the rules.
                is_in_sync=self.broker_id in registration.isr and before is None,
                is_new=registration.partition_epoch == 0,
                preferred=self._preferred.pop(key, None),
                has_folder=before is not None and before.last_state is not None and before.last_state.has_folder,
            )
        except TidelogError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            # Without a cause it is a rule's refusal, which the controller knows the reason of.
            last = None if before is None else before.last_state
            self._note_offline(key, OfflineReplica(topic_id, error, error.__cause__ is not None, last))
            return
        self._offline.discard(key)
        if before is not None and before.last_state is not None:
            high_watermark = restore(log, high_watermark, before.last_state.checkpoint)
        state = PartitionState(self.broker_id, high_watermark, config.min_insync_replicas, self._max_lag_ms)
        partition = Partition(key[0], topic_id, key[1], log, state, self._effects, self._clock)
        partition.change_eligible(self._brokers)
        self._partitions[key] = partition
        if not log.is_founded:
            self.foundings.add(partition)
        failure = self._directories.failures.get(log.directory.parent)
        if failure is not None:
            # It failed while the log was being opened.
            self._take_offline(key, partition, OfflineReplica(topic_id, failure))
            return
        self._change_registration(key, partition, registration)

    async def _retry(self, key: PartitionKey, offline: OfflineReplica) -> None:
        await self._offline.closed()
        registration = self._image.partition(*key)
        topic = self._image.topics.get(key[0])
        is_ours = registration is not None and self.broker_id in registration.replicas
        if registration is None or topic is None or topic.topic_id != offline.topic_id or not is_ours:
            self._offline.discard(key)
            return
        await self._open(key, offline.topic_id, registration)
        if key in self._partitions:
            logger.info("%s-%d is online again", *key)

    def _refuse_for_a_while(self, partition: Partition, error: TidelogError) -> None:
        """Take a replica offline until its disk takes its files; a second call does nothing."""
        key = (partition.topic, partition.index)
        if self._partitions.get(key) is partition:
            last = last_state(partition.log, partition.high_watermark)
            offline = OfflineReplica(partition.topic_id, error, is_retried=True, last_state=last)
            self._take_offline(key, partition, offline)
            self._note_offline(key, offline)

    def _take_offline(self, key: PartitionKey, partition: Partition, offline: OfflineReplica) -> None:
        del self._partitions[key]
        self._full_disks.forget(partition)
        self._offline.put(key, offline)
        partition.go_offline(offline.error)
        self._offline.close_soon(partition.log, offline.error, partition.disk)

    def _note_offline(self, key: PartitionKey, offline: OfflineReplica) -> None:
        """The controller is told of a replica that cannot be used though its directory has not failed."""
        before = self._offline.get(key)
        self._offline.put(key, offline)
        if before is None or before is offline or not before.is_retried:
            logger.error("%s-%d is offline on this node: %s", *key, offline.error.message)
        if offline.is_retried:
            self._effects.assign(offline.topic_id, key[1], LOST_DIRECTORY)

    def _assign(self, partition: Partition, directory: LogDirectory) -> None:
        keeps_log = self._full_disks.keeps_log(partition)
        self._effects.assign(partition.topic_id, partition.index, directory.id, keeps_log=keeps_log)

    def _note_moved(self, partition: Partition, target: LogDirectory, condemned: Path) -> None:
        self._directories.forget(condemned.parent / f"{partition.topic}-{partition.index}")
        self.condemned.add(condemned, partition.log.config.file_delete_delay_ms)
        self._assign(partition, target)

    async def _change_configs(self, delta: MetadataDelta, slices: TimeSlices, *, concerns_all: bool) -> None:
        if not concerns_all and not delta.topics_with_changed_config:
            return
        for partition in self:
            if concerns_all or partition.topic in delta.topics_with_changed_config:
                partition.change_config(self._configs.of(partition.topic))
            if slices.is_over:
                await slices.give_way()
