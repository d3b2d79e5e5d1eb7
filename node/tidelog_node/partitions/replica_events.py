"""What partitions and their disks did, as the events that :class:`~tidelog_node.hosting.HostedReplicas` takes."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.hosting import LastState, PartitionKey
from tidelog_node.hosting.events import AppendRefused, RegistrationTaken, ReplicaRefused
from tidelog_node.log import PartitionLog
from tidelog_node.log.directory.log_directory import PartitionCheckpoint
from tidelog_node.partitions.partition import Partition
from tidelog_quorum.metadata import PartitionRegistration


def key_of(partition: Partition) -> PartitionKey:
    """Return the name of a partition."""
    return partition.topic, partition.index


def last_state(log: PartitionLog, high_watermark: int) -> LastState:
    """Return what a checkpoint would say of a log now."""
    checkpoint = PartitionCheckpoint(log.recovery_point, high_watermark, log.log_start_offset)
    return LastState(log.directory.parent, checkpoint, log.is_founded)


def change_registration(
    partition: Partition, registration: PartitionRegistration
) -> RegistrationTaken | ReplicaRefused:
    """Give a partition the metadata's state of it; a role that the log cannot take is not taken."""
    try:
        partition.change_registration(registration)
    except TidelogError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return replica_refused(partition, error)
    return RegistrationTaken(key_of(partition), registration)


def replica_refused(partition: Partition, error: TidelogError, *, is_hosted: bool = True) -> ReplicaRefused:
    """Return that the disk refused a partition's files; unless it ``is_hosted``, it was removed or went offline."""
    state = last_state(partition.log, partition.high_watermark)
    return ReplicaRefused(key_of(partition) if is_hosted else None, error, state)


def append_refused(partition: Partition, error: TidelogError) -> AppendRefused:
    """Return that a full disk refused an append."""
    leader = partition.state.leader
    return AppendRefused(key_of(partition), error, None if leader is None else leader.successors)
