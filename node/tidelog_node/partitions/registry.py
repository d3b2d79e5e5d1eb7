"""Registry of the partitions on this node, which follows the metadata.

The registry is the shell of :mod:`tidelog_node.hosting`, which makes the decisions. It opens, closes and deletes logs
in threads, applies changes to partitions in single steps on the event loop, and reports events of disks and partitions
to the core. The changes of an image, a move and a retry never overlap. A topic with many partitions does not delay
other work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import assert_never

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.broker.report import Report
from tidelog_node.event_loop import Clock
from tidelog_node.hosting import HostedReplicas, PartitionKey, commands, events
from tidelog_node.log import LogDirectory, PartitionLog
from tidelog_node.log.directory.deletion import remove_directory
from tidelog_node.log.disk.disk_errors import is_directory_failure, is_disk_failure
from tidelog_node.partitions.directories.checkpoint_writer import CheckpointWriter
from tidelog_node.partitions.directories.closing_logs import ClosingLogs
from tidelog_node.partitions.directories.descriptions import LogDirectoryDescription, describe
from tidelog_node.partitions.directories.directory_assignments import DirectoryAssignments
from tidelog_node.partitions.directories.folder_creation import FolderCreation
from tidelog_node.partitions.directories.loading import FoundPartition
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.directories.relocation import Relocations
from tidelog_node.partitions.directories.replica_logs import OpenedLog, ReplicaLogs
from tidelog_node.partitions.fetchers.fetcher_pool import FetcherPool
from tidelog_node.partitions.isr_changes import IsrChanges
from tidelog_node.partitions.measurements import Measurements
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.replica_events import append_refused, change_registration, key_of, replica_refused
from tidelog_node.replication import PartitionState
from tidelog_node.replication.commands import ProposeIsr
from tidelog_quorum.metadata.delta import MetadataDelta
from tidelog_quorum.metadata.image import MetadataImage

logger = logging.getLogger(__name__)

_RETRY_S = 5.0
_REMOVAL_S = 1.0


class PartitionRegistry:
    """The node's partitions by topic and index, and their ``PartitionEffects``; one per node.

    ``found`` holds the logs of an earlier run; the registry takes each over when the first image names it.
    ``on_storage_failure`` runs when no log directory is left.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        directories: LogManager,
        found: dict[PartitionKey, FoundPartition],
        defaults: TopicConfig,
        replica_lag_time_max_ms: int,
        clock: Clock,
        on_storage_failure: Callable[[TidelogError], None],
        max_move_bytes_per_second: float = math.inf,
        measured: Measurements | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.measured = measured or Measurements()
        self.relocations = Relocations(
            directories.files, max_move_bytes_per_second, clock.wall_ms, self._note_moved, self.fail_directory
        )
        self._hosted = HostedReplicas(broker_id, {d.path: d.id for d in directories.online}, defaults)
        self._directories = directories
        self._logs = ReplicaLogs(directories, found, self.fail_directory)
        self._closing = ClosingLogs()
        self._max_lag_ms = replica_lag_time_max_ms
        self._clock = clock
        self._on_storage_failure = on_storage_failure
        self._partitions: dict[PartitionKey, Partition] = {}
        self.checkpoints = CheckpointWriter(
            directories, self._partitions, self._logs, self._hosted, self.relocations, self.fail_directory
        )
        self.folder_creation = FolderCreation(self.storage_failed)
        self._fetchers: FetcherPool | None = None
        self._isr_changes: IsrChanges | None = None
        self._assignments: DirectoryAssignments | None = None
        self._on_directory_failure: Callable[[], None] = lambda: None
        self._changing = asyncio.Lock()

    def connect(
        self,
        fetchers: FetcherPool,
        isr_changes: IsrChanges,
        assignments: DirectoryAssignments | None = None,
        on_directory_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Connect the fetchers and the queues to the controller; call once, before the first image."""
        self._fetchers = fetchers
        self._isr_changes = isr_changes
        self._assignments = assignments
        self._on_directory_failure = on_directory_failure

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, topic: str, index: int) -> Partition | None:
        """Return a partition of this node; None when it has no replica or the replica's directory is offline."""
        return self._partitions.get((topic, index))

    def check_online(self, topic: str, index: int) -> None:
        """Raise KAFKA_STORAGE_ERROR when this node's replica is in a directory that is offline."""
        self._hosted.check_online((topic, index))

    @property
    def offline_count(self) -> int:
        """The number of replicas of this node whose log cannot be used."""
        return self._hosted.offline_count

    def change_defaults(self, defaults: TopicConfig) -> None:
        """Change the default topic settings; partitions receive them with the next :meth:`apply`."""
        self._feed(events.DefaultsChanged(defaults))

    async def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Bring the partitions to the state of ``image``, which differs from the last one by ``delta``.

        Raises:
            ConfigError: Two directories have the same partition, and the metadata does not tell which one is right.
        """
        async with self._changing:
            slices = TimeSlices()
            self._feed(events.ImageChanged(image, delta))
            while self._hosted.is_changing:
                await self._run(events.Proceed())
                if slices.is_over:
                    await slices.give_way()
            self.measured.roles.summarize()

    async def discard_unknown(self) -> None:
        """Mark the logs that the first image does not name as stray, and resume the moves of the earlier run."""
        await self._logs.rename_strays()
        for directory in self._directories.online:
            try:
                await self.relocations.resume(directory, self._directories, self._partitions.get)
            except TidelogError as error:
                if is_directory_failure(error):
                    self.fail_directory(directory.path, error)
                else:
                    logger.error("Moves to %s resume after the next start: %s", directory.path, error.message)

    async def move(self, topic: str, partition: int, path: str) -> None:
        """Start to move a replica to another log directory of this node (AlterReplicaLogDirs, KIP-113).

        The move goes on in the background and replaces an earlier move of the replica. A move to the replica's current
        directory cancels a running one.

        Raises:
            TidelogError: LOG_DIR_NOT_FOUND: ``path`` is not in ``log.dirs``. KAFKA_STORAGE_ERROR: The target or the
                replica's own directory is offline. REPLICA_NOT_AVAILABLE: This node has no replica of the partition;
                a later one will be created in ``path``.
        """
        target, key = self._directories.find(path), (topic, partition)
        async with self._changing:
            self.check_online(*key)
            under_way = self.relocations.get(key)
            if under_way is not None and under_way.target is not target:
                await self.relocations.cancel(key)
            held = self._partitions.get(key)
            if held is None:
                self._feed(events.DirectoryPreferred(key, target.path))
                text = f"node {self.broker_id} has no replica of {topic}-{partition}"
                raise error_for(ErrorCode.REPLICA_NOT_AVAILABLE, text)
            if held.log.directory.parent != target.path and self.relocations.get(key) is None:
                self.relocations.start(held, target)

    @property
    def log_dirs(self) -> list[Path]:
        """The paths of ``log.dirs``, online or not."""
        return [*(directory.path for directory in self._directories.online), *self._directories.failures]

    async def describe_log_dirs(self) -> list[LogDirectoryDescription]:
        """Return every directory of ``log.dirs`` with its replicas and the space of its file system (KIP-113, 827)."""
        return await describe(self._directories, self, self.relocations)

    async def retry_full(self) -> None:
        """Retry every few seconds to grow, open and remove the replicas that a disk refused, until cancelled."""
        while True:
            await asyncio.sleep(_RETRY_S)
            await self._run(events.RetryDue())
            for retry in self._hosted.retries():
                # One lock per retry, so that an image does not wait for all retries.
                async with self._changing:
                    was_offline = self._hosted.offline(retry.key) is not None
                    await self._run(retry)
                    if was_offline and retry.key in self._partitions:
                        logger.info("%s-%d is online again", *retry.key)

    async def remove_folders(self) -> None:
        """Remove the folders of deleted replicas after their delay, until cancelled.

        The next start removes a folder that a disk refuses to remove, or that is left when the node stops.
        """
        while True:
            await asyncio.sleep(_REMOVAL_S)
            await self._run(events.TimePassed())

    def fail_directory(self, path: Path, error: TidelogError) -> None:
        """Take a log directory offline with all replicas in it; a second call does nothing."""
        if not self._directories.fail(path, error):
            return
        self.relocations.abandon(path)
        dropped = self._logs.drop_failed(path)
        for _, found in dropped:
            self._closing.add(found.log, error)
        held = tuple(key for key, p in self._partitions.items() if p.log.directory.parent == path)
        self._feed(events.DirectoryFailed(path, error, held, tuple((key, found.topic_id) for key, found in dropped)))

    async def close(self) -> None:
        """Close every log. A failure to close one takes its directory offline and does not stop the others.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR: No log directory is left.
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
        await self._closing.wait()
        for key, _ in self._hosted.offline_states():
            self._directories.note_unclean(key)
        if not self._directories.online:
            raise next(iter(self._directories.failures.values()))

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a partition's ISR proposal to the controller."""
        assert self._isr_changes is not None
        self._isr_changes.submit(partition, proposal)

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Record that a partition follows a leader."""
        if self._is_hosted(partition):
            self._feed(events.LeaderFollowed(key_of(partition), leader_id, leader_epoch))

    def stop_fetching(self, partition: Partition) -> None:
        """Record that a partition follows no leader."""
        if self._is_hosted(partition):
            self._feed(events.LeaderUnfollowed(key_of(partition)))

    def storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """Take a replica with an unusable log offline for a while, or its whole directory if the disk failed."""
        self._feed(replica_refused(partition, error, is_hosted=self._is_hosted(partition)))

    def disk_is_full(self, partition: Partition, error: TidelogError) -> None:
        """Report a log that cannot grow because the disk is full; the log is unchanged."""
        if self._is_hosted(partition):
            self._feed(append_refused(partition, error))

    def _close_failed(self, log: PartitionLog, error: TidelogError) -> None:
        if is_disk_failure(error):
            self.fail_directory(log.directory.parent, error)
        else:
            logger.error("Closing a log failed: %s", error.message)
            self._directories.note_unclean_in(log.directory.parent)

    def _note_moved(self, partition: Partition, target: LogDirectory, renamed: Path) -> None:
        self._directories.forget(renamed.parent / str(partition))
        delay_ms = partition.log.config.file_delete_delay_ms
        self._feed(events.ReplicaMoved(key_of(partition), target.path, renamed, delay_ms))

    def _is_hosted(self, partition: Partition) -> bool:
        return self._partitions.get(key_of(partition)) is partition

    async def _run(self, event: events.Event) -> None:
        """Pass an event to the core and execute its commands, including long work."""
        for command in self._hosted.step(event, self._clock.monotonic_ms()):
            if isinstance(command, commands.Work):
                await self._work(command)
            else:
                self._execute(command)

    def _feed(self, event: events.Event) -> None:
        """Pass an event to the core that may occur at any time and leads to no long work."""
        for command in self._hosted.step(event, self._clock.monotonic_ms()):
            assert not isinstance(command, commands.Work), command
            self._execute(command)

    def _execute(self, command: commands.Effect) -> None:
        match command:
            case commands.ChangeRegistration():
                held = self._partitions.get(command.key)
                if held is not None:
                    self._feed(change_registration(held, command.registration))
            case commands.ChangeEligible():
                self._partitions[command.key].step(command.brokers)
            case commands.TakeOffline():
                partition = self._partitions.pop(command.key)
                partition.go_offline(command.error)
                self._closing.add(partition.log, command.error, partition.disk)
            case commands.AssignDirectory():
                if self._assignments is not None:
                    self._assignments.submit(command)
            case commands.FailDirectory():
                self.fail_directory(command.directory, command.error)
            case commands.ReportDirectories():
                self._on_directory_failure()
            case commands.FailNode():
                self._on_storage_failure(command.error)
            case Report():
                logger.log(command.level, command.text, *command.arguments)
            case _:
                self._direct_fetchers(command)

    def _direct_fetchers(self, command: commands.FetcherCommand) -> None:
        fetchers = self._fetchers
        assert fetchers is not None
        match command:
            case commands.AddToFetcher():
                fetchers.add(command.leader_id, self._partitions[command.key], command.leader_epoch)
            case commands.RemoveFromFetcher():
                fetchers.remove(command.leader_id, self._partitions[command.key])
            case commands.BeginFetcher():
                fetchers.begin(command.leader_id)
            case commands.EndFetcher():
                fetchers.end(command.leader_id)
            case commands.PauseFetches():
                fetchers.pause_additions()
            case commands.ResumeFetches():
                fetchers.resume_additions()
            case _:
                assert_never(command)

    async def _work(self, command: commands.SomeWork) -> None:
        match command:
            case commands.OpenLog():
                await self._open(command)
            case commands.CreateLogs():
                await self._logs.create_ahead(command.logs)
            case commands.ChangeBrokers():
                async for partition in TimeSlices().of(self):
                    partition.step(command.brokers)
            case commands.ChangeConfigs():
                async for key, config in TimeSlices().of(command.configs):
                    held = self._partitions.get(key)
                    if held is not None:
                        held.change_config(config)
            case commands.CancelMove():
                await self.relocations.cancel(command.key)
            case commands.DeleteReplica():
                await self._delete(command)
            case commands.ScheduleDeletion():
                await self._schedule_deletion(command)
            case commands.RemoveFolder():
                await self._remove_folder(command.path)
            case commands.RenameToStray():
                await self._rename_to_stray(command)
            case commands.MeasureSpace():
                free = (await asyncio.to_thread(self._directories.space, command.directory))[1]
                await self._run(events.SpaceMeasured(command.directory, free))
            case _:
                assert_never(command)

    async def _open(self, command: commands.OpenLog) -> None:
        directory: LogDirectory | None = None
        if command.is_retry:
            await self._closing.wait()
        try:
            opened = await self._logs.take(command)
            if opened is None:
                directory = self._directories.place(command)
                opened = await self._logs.open_in(directory, command)
        except TidelogError as error:
            if error.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INCONSISTENT_TOPIC_ID):
                raise
            await self._run(events.OpenRefused(command.key, None if directory is None else directory.path, error))
            return
        self._host(command, opened)
        self._feed(events.LogOpened(command.key, opened.log.directory.parent))

    def _host(self, command: commands.OpenLog, opened: OpenedLog) -> None:
        (topic, index), log = command.key, opened.log
        state = PartitionState(
            self.broker_id,
            opened.high_watermark,
            command.config.min_insync_replicas,
            self._max_lag_ms,
            command.leadership,
        )
        partition = Partition(topic, command.topic_id, index, log, state, self, self._clock, self.measured)
        self._partitions[command.key] = partition
        if not log.has_folder:
            self.folder_creation.add(partition)

    async def _delete(self, command: commands.DeleteReplica) -> None:
        key = command.key
        partition = self._partitions.pop(key)
        path, delay_ms = partition.log.directory, partition.log.config.file_delete_delay_ms
        try:
            renamed = await partition.delete(is_gone=command.is_gone)
        except TidelogError as error:
            await self._run(events.DeletionRefused(key, path.parent, delay_ms, error))
            return
        except asyncio.CancelledError:
            # The process stops, so no task will close this log cleanly.
            self._directories.note_unclean(key)
            raise
        self._directories.forget(path)
        logger.info("%s was removed from this node", partition)
        await self._run(events.DeletionScheduled(key, renamed, delay_ms))

    async def _schedule_deletion(self, command: commands.ScheduleDeletion) -> None:
        key, delay_ms, renamed = command.key, command.delay_ms, None
        directory = self._directories.holding(key)
        if command.directory is not None:
            directory = self._directories.at(command.directory)
        if directory is not None:
            await self._closing.wait()
            try:
                renamed = await asyncio.to_thread(self._directories.rename_for_deletion, directory, key)
            except TidelogError as error:
                await self._run(events.DeletionRefused(key, directory.path, delay_ms, error))
                return
        await self._run(events.DeletionScheduled(key, renamed, delay_ms))

    async def _rename_to_stray(self, command: commands.RenameToStray) -> None:
        try:
            path = self._directories.find(command.directory).partition_path(*command.key)
            await asyncio.to_thread(self._directories.rename_to_stray, path)
        except TidelogError as error:
            await self._run(events.OpenRefused(command.key, None, error))
            return
        self._directories.forget(path)
        await self._run(events.StrayRenamed(command.key))

    async def _remove_folder(self, path: Path) -> None:
        try:
            await asyncio.to_thread(remove_directory, self._directories.files, path)
        except TidelogError as error:
            logger.error("The next start removes a deleted replica: %s", error.message)
