"""Events of partitions and their disks for :class:`~tidelog_node.hosting.HostedReplicas`."""

from __future__ import annotations

from dataclasses import replace

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.hosting import LastState, PartitionKey
from tidelog_node.hosting.events import AppendRefused, RegistrationTaken, ReplicaRefused
from tidelog_node.log import PartitionLog
from tidelog_node.log.directory.log_directory import PartitionCheckpoint
from tidelog_node.partitions.partition import Partition
from tidelog_quorum.metadata.registrations import PartitionRegistration


def key_of(partition: Partition) -> PartitionKey:
    """Return a partition's topic and index."""
    return partition.topic, partition.index


def last_state(log: PartitionLog, high_watermark: int) -> LastState:
    """Return the state that a checkpoint of a log would have now."""
    checkpoint = PartitionCheckpoint(log.recovery_point, high_watermark, log.log_start_offset)
    return LastState(log.directory.parent, checkpoint, log.has_folder)


def change_registration(
    partition: Partition, registration: PartitionRegistration
) -> RegistrationTaken | ReplicaRefused:
    """Apply a registration to a partition; return ReplicaRefused when a storage error of its log prevents that."""
    try:
        partition.change_registration(registration)
    except TidelogError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return replica_refused(partition, error)
    return RegistrationTaken(key_of(partition), registration)


def replica_refused(partition: Partition, error: TidelogError, *, is_hosted: bool = True) -> ReplicaRefused:
    """Return the event of a disk error in a partition's files; ``is_hosted`` is False for a removed or offline one."""
    state = replace(last_state(partition.log, partition.high_watermark), leadership=partition.state.leadership)
    return ReplicaRefused(key_of(partition) if is_hosted else None, error, state)


def append_refused(partition: Partition, error: TidelogError) -> AppendRefused:
    """Return the event of an append that a full disk refused."""
    leader = partition.state.leader
    return AppendRefused(key_of(partition), error, None if leader is None else leader.successors)
