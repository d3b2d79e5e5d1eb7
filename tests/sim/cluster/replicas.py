"""The replicas of a simulated node: the product's core over a simulated disk, and what is done to them by the clock.

What is opened, led, followed, taken offline, tried again and removed, and in which order, is decided by
``HostedReplicas``; this does what it says, as ``PartitionRegistry`` does with threads. One of these lasts for one life
of the process.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from sim.cluster.serving import Key
from sim.cluster.sleeping import returned
from sim.cluster.standing import CLUSTER
from sim.cluster.waiting import SimulatedWaiters

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import TopicId
from tidelog_node.broker.report import Report
from tidelog_node.hosting import HostedReplicas, commands, events
from tidelog_node.hosting.assignments import AssignmentEvent, AssignmentQueue, AssignmentsDue, AssignmentsFailed
from tidelog_node.log import PartitionLog
from tidelog_node.log.directory.deletion import remove_directory
from tidelog_node.partitions import LogManager
from tidelog_node.partitions.directories.checkpoint_writer import CheckpointWriter
from tidelog_node.partitions.directories.closing_logs import close_offline
from tidelog_node.partitions.directories.directory_assignments import assignments_answered, assignments_request
from tidelog_node.partitions.directories.loading import FoundPartition
from tidelog_node.partitions.directories.replica_logs import OpenedLog, ReplicaLogs, open_log
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.replica_events import change_registration, key_of
from tidelog_node.replication import PartitionState
from tidelog_node.replication.events import Event
from tidelog_quorum.metadata.delta import delta_between
from tidelog_quorum.metadata.image import MetadataImage

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess

LOG_DIR = Path("/d")
_RETRY_MS = 400
_FOREVER_MS = 1 << 60
_SCALE = 1024
"""Simulated batches, and so disks, are so much smaller than those that the product expects."""


class SimulatedPartition(Partition):
    """The product's partition, watched: whatever a step or an answer did to it is checked right after."""

    def __init__(
        self, node: NodeProcess, topic_id: TopicId, key: Key, log: PartitionLog, state: PartitionState
    ) -> None:
        super().__init__(key[0], topic_id, key[1], log, state, node, node)
        self.node = node
        self.key = key
        self.waiters = SimulatedWaiters()

    def step(self, event: Event) -> None:
        super().step(event)
        self._check()

    def replicate(self, *answer: Any) -> None:
        super().replicate(*answer)
        # The compiled way takes no step.
        self._check()

    def _check(self) -> None:
        if self.node.checks_invariants:
            self.state.check_invariants()
        if self.node.partitions.get(self.key) is self:
            self.node.checker.observe(self)


class Replicas:
    """Made by a start, which recovers what the disk holds; raises TidelogError when the disk refuses."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.applied = MetadataImage()
        self.partitions: dict[Key, SimulatedPartition] = {}
        self.directories = LogManager.open(
            [str(LOG_DIR)], CLUSTER, node.identity, node.files, producer_id_expiration_ms=_FOREVER_MS
        )
        self.directory = self.directories.find(LOG_DIR)
        self.previous_epoch = self.directories.previous_broker_epoch
        self.hosted = HostedReplicas(node.identity, {LOG_DIR: self.directory.id}, node.topology.topic_config())
        self._assignments = AssignmentQueue()
        self._is_assigning = False
        self._logs = ReplicaLogs(self.directories, self._recover(), self.fail_directory)
        self._checkpoints = CheckpointWriter(
            self.directories, self.partitions, self._logs, self.hosted, (), self.fail_directory
        )

    def begin(self) -> None:
        """Do what is to be done by the clock."""
        node, topology = self.node, self.node.topology
        node.after(topology.max_lag_ms / 2, self._watch_lag)
        node.after(topology.checkpoint_ms, self._write_checkpoints)
        node.after(topology.housekeeping_ms, self._keep_house)
        node.after(_RETRY_MS, self._retry)

    def apply(self, image: MetadataImage) -> None:
        """Bring the replicas to the state of an image."""
        self.feed(events.ImageChanged(image, delta_between(self.applied, image)))
        self.applied = image
        while self.hosted.is_changing:
            self.feed(events.Proceed())

    def discard_unknown(self) -> None:
        """Rename the logs that the first image does not name to stray."""
        for _, found in self._logs.drop_all():
            try:
                found.log.close()
                self.directories.rename_to_stray(found.log.directory)
                self.directories.forget(found.log.directory)
            except TidelogError as error:
                self.fail_directory(LOG_DIR, error)

    def feed(self, event: events.Event) -> None:
        """Let the product's core take in an event, and do what it says."""
        due = self.hosted.step(event, self.node.monotonic_ms())
        if self.node.checks_invariants:
            self.hosted.check_invariants()
        for command in due:
            if isinstance(command, commands.Work):
                self._work(command)
            else:
                self._execute(command)

    def is_held(self, partition: Partition) -> bool:
        """Return whether this partition, and not a later one of the same name, is open."""
        return self.partitions.get(key_of(partition)) is partition

    def fail_directory(self, path: Path, error: TidelogError) -> None:
        """Take the log directory offline; a second call does nothing."""
        if self.directories.fail(path, error):
            found = tuple((key, one.topic_id) for key, one in self._logs.drop_failed(path))
            self.feed(events.DirectoryFailed(path, error, tuple(self.partitions), found))

    def close(self) -> None:
        """Close the logs, write the checkpoints, leave the marker: in this order."""
        self.node.fetchers.end_all()
        for partition in self.partitions.values():
            partition.log.close()
        for _, found in self._logs:
            found.log.close()
        for key, _ in self.hosted.offline_states():
            self.directories.note_unclean(key)
        self._write_all_checkpoints()
        self.directories.close(clean=True, broker_epoch=self.node.standing.lifecycle.clean_shutdown_epoch)

    def _recover(self) -> dict[Key, FoundPartition]:
        """Open every log, as the product's start does in threads."""
        found: dict[Key, FoundPartition] = {}
        for key in self.directory.partitions():
            topic_id = self.directory.topic_id(*key)
            if topic_id is not None:
                log = self.directory.open_log(*key, topic_id, self.node.topology.topic_config())
                self.node.checker.note_recovered(self.node, key, log)
                checkpoint = self.directory.checkpoint(key).high_watermark
                high_watermark = min(max(checkpoint, log.log_start_offset), log.log_end_offset)
                found[key] = FoundPartition(topic_id, log, high_watermark, self.directory.id)
        return found

    def _execute(self, command: commands.Effect) -> None:
        node = self.node
        match command:
            case commands.ChangeRegistration():
                held = self.partitions.get(command.key)
                if held is not None:
                    self.feed(change_registration(held, command.registration))
            case commands.ChangeEligible():
                self.partitions[command.key].step(command.brokers)
            case commands.TakeOffline():
                partition = self.partitions.pop(command.key)
                partition.go_offline(command.error)
                node.checker.note_closed(node, command.key)
                close_offline(partition.log, command.error)
            case commands.AddToFetcher():
                node.fetchers.add(command.leader_id, self.partitions[command.key], command.leader_epoch)
            case commands.RemoveFromFetcher():
                node.fetchers.remove(command.leader_id, self.partitions[command.key])
            case commands.BeginFetcher():
                node.fetchers.begin(command.leader_id)
            case commands.EndFetcher():
                node.fetchers.end(command.leader_id)
            case commands.AssignDirectory():
                self._assign(command)
            case commands.FailDirectory():
                self.fail_directory(command.directory, command.error)
            case commands.FailNode():
                node.soon(node.fail)
            case commands.PauseFetches() | commands.ResumeFetches() | commands.ReportDirectories() | Report():
                pass
            case _:
                assert_never(command)

    def _work(self, command: commands.SomeWork) -> None:
        match command:
            case commands.OpenLog():
                self._open(command)
            case commands.ChangeBrokers():
                for partition in list(self.partitions.values()):
                    partition.step(command.brokers)
            case commands.ChangeConfigs():
                for key, config in command.configs:
                    held = self.partitions.get(key)
                    if held is not None:
                        held.change_config(config)
            case commands.DeleteReplica():
                self._delete(command)
            case commands.ScheduleDeletion():
                self._schedule_deletion(command.key, command.delay_ms)
            case commands.RemoveFolder():
                with contextlib.suppress(TidelogError):
                    remove_directory(self.directories.files, command.path)
            case commands.RenameToStray():
                self._rename_to_stray(command.key)
            case commands.MeasureSpace():
                free = self.node.files.capacity
                self.feed(events.SpaceMeasured(command.directory, -1 if free is None else free * _SCALE))
            case commands.CancelMove() | commands.CreateLogs():
                pass
            case _:
                assert_never(command)

    def _open(self, command: commands.OpenLog) -> None:
        node, key = self.node, command.key
        directory = None
        try:
            opened = returned(self._logs.take(command))
            if opened is None:
                directory = self.directories.place(command)
                log = open_log(directory, command)
                node.checker.note_recovered(node, key, log)
                opened = OpenedLog.of(log, directory, command)
        except TidelogError as error:
            self.feed(events.OpenRefused(key, None if directory is None else LOG_DIR, error))
            return
        state = PartitionState(
            node.identity,
            opened.high_watermark,
            command.config.min_insync_replicas,
            node.topology.max_lag_ms,
            command.leadership,
        )
        self.partitions[key] = SimulatedPartition(node, command.topic_id, key, opened.log, state)
        self.feed(events.LogOpened(key, LOG_DIR))

    def _delete(self, command: commands.DeleteReplica) -> None:
        key, partition = command.key, self.partitions.pop(command.key)
        path, delay_ms = partition.log.directory, partition.log.config.file_delete_delay_ms
        partition.note_removed(is_gone=command.is_gone)
        self.node.checker.note_closed(self.node, key)
        try:
            renamed = partition.log.rename_for_deletion()
        except TidelogError as error:
            self.feed(events.DeletionRefused(key, LOG_DIR, delay_ms, error))
            return
        self.directories.forget(path)
        self.feed(events.DeletionScheduled(key, renamed, delay_ms))

    def _schedule_deletion(self, key: Key, delay_ms: int) -> None:
        renamed, directory = None, self.directories.holding(key)
        try:
            if directory is not None:
                renamed = self.directories.rename_for_deletion(directory, key)
        except TidelogError as error:
            self.feed(events.DeletionRefused(key, LOG_DIR, delay_ms, error))
            return
        self.feed(events.DeletionScheduled(key, renamed, delay_ms))

    def _rename_to_stray(self, key: Key) -> None:
        path = self.directory.partition_path(*key)
        try:
            self.directories.rename_to_stray(path)
        except TidelogError as error:
            self.feed(events.OpenRefused(key, None, error))
            return
        self.directories.forget(path)
        self.feed(events.StrayRenamed(key))

    def _assign(self, event: AssignmentEvent) -> None:
        """Let the product's queue take in what is to be told of directories, and send what is due."""
        node = self.node
        for command in self._assignments.step(event, node.monotonic_ms()):
            request = assignments_request(node.identity, node.broker_epoch, command.assignments)
            node.calls.ask("handle_assign_replicas_to_dirs", request, self._assignments_answered, 600)
        if node.checks_invariants:
            self._assignments.check_invariants()
        deadline_ms = self._assignments.next_deadline_ms
        if deadline_ms is not None and not self._is_assigning:
            self._is_assigning = True
            node.world.at(node.due_us(deadline_ms), node.enter, node.life, self._assignments_due)

    def _assignments_due(self) -> None:
        self._is_assigning = False
        self._assign(AssignmentsDue())

    def _assignments_answered(self, response: Any) -> None:
        has_failed = isinstance(response, TidelogError)
        self._assign(AssignmentsFailed() if has_failed else assignments_answered(response))

    def _retry(self) -> None:
        self.feed(events.RetryDue())
        for retry in self.hosted.retries():
            self.feed(retry)
        self.node.after(_RETRY_MS, self._retry)

    def _watch_lag(self) -> None:
        for partition in list(self.partitions.values()):
            partition.pass_time()
        self.node.after(self.node.topology.max_lag_ms / 2, self._watch_lag)

    def _write_checkpoints(self) -> None:
        self._write_all_checkpoints()
        self.node.after(self.node.topology.checkpoint_ms, self._write_checkpoints)

    def _write_all_checkpoints(self) -> None:
        checkpoints = self._checkpoints
        checkpoints.note_failures(self.directories.write_checkpoints(*checkpoints.current()))
        checkpoints.note_failures(self.directories.write_log_start_offsets(checkpoints.log_start_offsets()))

    def _keep_house(self) -> None:
        """Flush, apply retention, remove what was deleted; an error of one partition is its own."""
        self.node.files.now_ms = now_ms = self.node.wall_ms()
        for partition in list(self.partitions.values()):
            log = partition.log
            if log.failure is not None:
                continue
            try:
                with partition.disk_watch:
                    if log.needs_flush(now_ms):
                        log.flush()
                    log.delete_expired(now_ms, partition.high_watermark)
                    log.remove_deleted_files(now_ms)
            except TidelogError:
                continue
            self.node.checker.observe(partition)
        self.feed(events.TimePassed())
        self.node.after(self.node.topology.housekeeping_ms, self._keep_house)
