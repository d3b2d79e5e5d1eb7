"""What a partition asks of its node: the commands that concern more than its own log, and what its disk did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.log.disk.disk_errors import Fault, fault_of
from tidelog_node.replication.commands import ProposeIsr

if TYPE_CHECKING:
    from tidelog_node.partitions.partition import Partition


class PartitionEffects(Protocol):
    """Where a partition's commands go that concern more than its own log."""

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send a proposal to the controller and feed its answer back."""
        ...

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Copy from a leader, in place of any earlier one."""
        ...

    def stop_fetching(self, partition: Partition) -> None:
        """Copy no more."""
        ...

    def storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """The partition's log cannot be used: its disk has failed, or its own files."""
        ...

    def disk_is_full(self, partition: Partition, error: TidelogError) -> None:
        """The partition's log is as it was, and cannot grow."""
        ...


class DiskWatch:
    """Reports a log that went offline, or that a disk refused; the error goes on to the caller.

    What the process lacks, such as file handles, concerns the caller alone while the log is as it was.
    """

    __slots__ = ("_effects", "_partition")

    def __init__(self, partition: Partition, effects: PartitionEffects) -> None:
        self._partition = partition
        self._effects = effects

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, TidelogError):
            return
        failure = self._partition.log.failure
        fault = fault_of(error)
        if failure is not None or fault in (Fault.DISK, Fault.REPLICA):
            self._effects.storage_failed(self._partition, failure or error)
        elif fault is Fault.FULL:
            self._effects.disk_is_full(self._partition, error)
