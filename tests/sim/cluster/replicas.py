"""The replicas of a simulated node, kept as the metadata says, and what is done to them by the clock.

As ``PartitionRegistry`` with its offline replicas and the housekeeping: opened, led, followed, taken offline for a
while by a full disk, removed; flushed, shortened, checked for lag, checkpointed. One of these lasts for one life of the
process; the log directory is the product's.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.cluster.full_disks import SimulatedFullDisks
from sim.cluster.serving import Key
from sim.cluster.standing import CLUSTER
from sim.cluster.waiting import SimulatedWaiters

from tidelog.config import TopicConfig
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import LOST_DIRECTORY, BrokerEpoch, DirectoryId, TopicId
from tidelog.v1 import controller_service_pb2 as pb
from tidelog_node.log import LogDirectory, PartitionLog
from tidelog_node.log.disk_errors import is_out_of_space
from tidelog_node.partitions.brokers import brokers_of
from tidelog_node.partitions.offline_replicas import LastState, last_state, restore
from tidelog_node.partitions.partition import Partition
from tidelog_node.replication import PartitionState
from tidelog_node.replication.events import EligibleBrokersChanged, Event
from tidelog_quorum.metadata import MetadataImage, PartitionRegistration, delta_between, topic_config

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess

LOG_DIR = Path("/d")
_RETRY_FULL_MS = 400
_FOREVER_MS = 1 << 60


class SimulatedPartition(Partition):
    """The product's partition, watched: whatever a step did to it is checked right after."""

    def __init__(
        self, node: NodeProcess, topic_id: TopicId, key: Key, log: PartitionLog, state: PartitionState
    ) -> None:
        super().__init__(key[0], topic_id, key[1], log, state, node, node)
        self.node = node
        self.key = key
        self.waiters = SimulatedWaiters()

    def step(self, event: Event) -> None:
        super().step(event)
        if self.node.checks_invariants:
            self.state.check_invariants()
        self.node.checker.observe(self)


class Replicas:
    """Made by a start, which recovers what the disk holds; raises TidelogError when the disk refuses."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self.applied = MetadataImage()
        self.partitions: dict[Key, SimulatedPartition] = {}
        self.offline: dict[Key, LastState | None] = {}
        self.full_disks = SimulatedFullDisks(self)
        self.directory = LogDirectory.open(LOG_DIR, cluster_id=CLUSTER, node_id=node.identity, files=node.files)
        self.directory.producer_id_expiration_ms = _FOREVER_MS
        epoch = self.directory.clean_shutdown_epoch
        self.previous_epoch = BrokerEpoch(-1) if epoch is None else epoch
        self._brokers = EligibleBrokersChanged({}, {})
        self._found: dict[Key, tuple[PartitionLog, int]] = {}
        for key in self.directory.partitions():
            topic_id = self.directory.topic_id(*key)
            if topic_id is not None:
                self._found[key] = self._open_log(key, topic_id, node.topology.topic_config())

    def begin(self) -> None:
        """Do what is to be done by the clock."""
        node, topology = self.node, self.node.topology
        node.after(topology.max_lag_ms / 2, self._watch_lag)
        node.after(topology.checkpoint_ms, self._write_checkpoints)
        node.after(topology.housekeeping_ms, self._keep_house)
        node.after(_RETRY_FULL_MS, self._look_for_room)

    def apply(self, image: MetadataImage) -> None:
        """Bring the replicas to the state of an image, in the order of ``PartitionRegistry.apply``."""
        delta = delta_between(self.applied, image)
        if delta.changed_brokers is not None:
            self._change_eligible(image)
        ours = []
        for change in delta.changed_partitions:
            if change.after is not None and self.node.number in change.after.replicas:
                ours.append(change)
            else:
                self._remove((change.topic_name, change.index), change.topic_id, is_gone=change.after is None)
        if image.configs is not self.applied.configs:
            for partition in list(self.partitions.values()):
                partition.change_config(self._config_of(image, partition.topic))
        self.applied = image
        for change in ours:
            assert change.after is not None
            self._ensure((change.topic_name, change.index), change.topic_id, change.after)

    def discard_unknown(self) -> None:
        """Remove the logs that the first image does not name."""
        for key in list(self._found):
            self._discard(key)

    def refuse_for_a_while(self, partition: SimulatedPartition, error: TidelogError) -> None:
        """Take a replica offline until its disk has space; a second call does nothing."""
        if self.partitions.get(partition.key) is not partition:
            return
        del self.partitions[partition.key]
        self.full_disks.forget(partition)
        self.offline[partition.key] = last_state(partition.log, partition.high_watermark)
        partition.go_offline(error)
        self.node.checker.note_closed(self.node, partition.key)
        with contextlib.suppress(TidelogError):
            partition.log.close()
        self._retry_later(partition.key, partition.topic_id)

    def close(self) -> None:
        """Close the logs, write the checkpoints, leave the marker: in this order."""
        is_clean = not self.offline
        for partition in self.partitions.values():
            self.node.fetchers.stop(partition)
            partition.log.close()
        for log, _ in self._found.values():
            log.close()
        self._write_all_checkpoints()
        self.directory.close(clean=is_clean, broker_epoch=self.node.standing.lifecycle.clean_shutdown_epoch)

    def _open_log(self, key: Key, topic_id: TopicId, config: TopicConfig) -> tuple[PartitionLog, int]:
        log = self.directory.open_log(*key, topic_id, config)
        checkpoint = self.directory.checkpoint(key).high_watermark
        self.node.checker.note_recovered(self.node, key, log)
        return log, min(max(checkpoint, log.log_start_offset), log.log_end_offset)

    def _config_of(self, image: MetadataImage, topic: str) -> TopicConfig:
        return topic_config(image, topic, self.node.topology.topic_config())

    def _change_eligible(self, image: MetadataImage) -> None:
        brokers = brokers_of(image)
        if brokers != self._brokers:
            self._brokers = brokers
            for partition in list(self.partitions.values()):
                partition.change_eligible(brokers)

    def _ensure(self, key: Key, topic_id: TopicId, registration: PartitionRegistration) -> None:
        partition = self.partitions.get(key)
        if partition is not None:
            self._change_registration(partition, registration)
        elif key not in self.offline:
            self._open(key, topic_id, registration)

    def _open(self, key: Key, topic_id: TopicId, registration: PartitionRegistration) -> None:
        node, config = self.node, self._config_of(self.applied, key[0])
        before = self.offline.pop(key, None)
        try:
            found = self._found.pop(key, None) or self._open_log(key, topic_id, config)
        except TidelogError as error:
            if is_out_of_space(error):
                self.offline[key] = before
                self._retry_later(key, topic_id)
            else:
                node.soon(node.fail)
            return
        log, high_watermark = found
        log.config = config
        if before is not None:
            high_watermark = restore(log, high_watermark, before.checkpoint)
        state = PartitionState(node.identity, high_watermark, config.min_insync_replicas, node.topology.max_lag_ms)
        partition = self.partitions[key] = SimulatedPartition(node, topic_id, key, log, state)
        partition.change_eligible(self._brokers)
        self._change_registration(partition, registration)

    def _change_registration(self, partition: SimulatedPartition, registration: PartitionRegistration) -> None:
        """A role that the log cannot take is not taken: the replica is offline for a while."""
        try:
            partition.change_registration(registration)
        except TidelogError as error:
            self.refuse_for_a_while(partition, error)
            return
        if self.full_disks.stays_back(partition, registration):
            return
        if registration.directory_of(self.node.identity) == self.directory.id:
            self.full_disks.note_place(partition)
        else:
            self.assign(partition.topic_id, partition.index, self.directory.id, self.full_disks.keeps_log(partition))

    def _retry_later(self, key: Key, topic_id: TopicId) -> None:
        self.assign(topic_id, key[1], LOST_DIRECTORY)
        self.node.after(_RETRY_FULL_MS, self._retry, key, topic_id)

    def _retry(self, key: Key, topic_id: TopicId) -> None:
        topic = self.applied.topics.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        if key in self.offline and registration is not None and self.node.number in registration.replicas:
            self._open(key, topic_id, registration)

    def assign(self, topic_id: TopicId, index: int, directory: DirectoryId, keeps_log: bool = False) -> None:
        """Tell the controller in which log directory a replica is."""
        node = self.node
        item = pb.DirectoryAssignment(directory_id=directory, keeps_logs=keeps_log)
        item.topics.add(topic_id=topic_id, partitions=[index])
        request = pb.AssignReplicasToDirsRequest(
            broker_id=node.number, broker_epoch=node.broker_epoch, directories=[item]
        )

        def take(response: Any) -> None:
            if isinstance(response, TidelogError) and response.code is ErrorCode.REQUEST_TIMED_OUT:
                node.after(50, self.assign, topic_id, index, directory, keeps_log)

        node.calls.ask("handle_assign_replicas_to_dirs", request, take, 600)

    def _remove(self, key: Key, topic_id: TopicId, *, is_gone: bool) -> None:
        was_offline = key in self.offline
        self.offline.pop(key, None)
        partition = self.partitions.pop(key, None)
        if partition is None:
            if key in self._found:
                self._discard(key)
            elif was_offline and key in self.directory:
                self._drop(key, None)
            return
        assert partition.topic_id == topic_id
        self.full_disks.forget(partition)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition._abandon(f"{partition} was removed", code)
        self.node.checker.note_closed(self.node, key)
        self._drop(key, partition.log)

    def _discard(self, key: Key) -> None:
        log, _ = self._found.pop(key)
        self._drop(key, log)

    def _drop(self, key: Key, log: PartitionLog | None) -> None:
        try:
            if log is None:
                self.directory.delete_partition(*key)
            else:
                log.delete()
                self.directory.forget(*key)
        except TidelogError:
            self.node.soon(self.node.fail)

    def _look_for_room(self) -> None:
        self.full_disks.look_now()
        self.node.after(_RETRY_FULL_MS, self._look_for_room)

    def _watch_lag(self) -> None:
        for partition in list(self.partitions.values()):
            partition.pass_time()
        self.node.after(self.node.topology.max_lag_ms / 2, self._watch_lag)

    def _write_checkpoints(self) -> None:
        try:
            self._write_all_checkpoints()
        except TidelogError as error:
            if not is_out_of_space(error):
                self.node.fail()
                return
        self.node.after(self.node.topology.checkpoint_ms, self._write_checkpoints)

    def _write_all_checkpoints(self) -> None:
        states = {key: last_state(p.log, p.high_watermark) for key, p in self.partitions.items()}
        states |= {key: last_state(log, high_watermark) for key, (log, high_watermark) in self._found.items()}
        states |= {key: state for key, state in self.offline.items() if state is not None}
        checkpoints = {key: state.checkpoint for key, state in states.items()}
        self.directory.write_recovery_points({key: c.recovery_point for key, c in checkpoints.items()})
        self.directory.write_high_watermarks({key: c.high_watermark for key, c in checkpoints.items()})
        starts = {key: c.log_start_offset for key, c in checkpoints.items() if c.log_start_offset}
        self.directory.write_log_start_offsets(starts)

    def _keep_house(self) -> None:
        """Flush, apply retention, remove what was deleted; an error of one partition is its own."""
        self.node.files.now_ms = now_ms = self.node.wall_ms()
        for partition in list(self.partitions.values()):
            log = partition.log
            if log.failure is not None:
                continue
            try:
                with partition._disk_watch:
                    if log.needs_flush(now_ms):
                        log.flush()
                    log.delete_expired(now_ms, partition.high_watermark)
                    log.remove_condemned(now_ms)
            except TidelogError:
                continue
            self.node.checker.observe(partition)
        self.node.after(self.node.topology.housekeeping_ms, self._keep_house)
