"""A partition's calls to its node: commands that concern more than its own log, and disk errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch
from tidelog_node.log.disk.disk_errors import Fault, fault_of
from tidelog_node.replication.commands import ProposeIsr

if TYPE_CHECKING:
    from tidelog_node.partitions.partition import Partition


class PartitionEffects(Protocol):
    """Actions that the node performs for a partition beyond the partition's own log."""

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Send an ISR proposal to the controller and pass its answer to the partition."""

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        """Fetch the partition from a leader, in place of any earlier leader."""

    def stop_fetching(self, partition: Partition) -> None:
        """Stop the partition's replica fetcher."""

    def storage_failed(self, partition: Partition, error: TidelogError) -> None:
        """Handle an unusable log after a failure of its disk or of its own files."""

    def disk_is_full(self, partition: Partition, error: TidelogError) -> None:
        """Handle a full disk: the partition's log is unchanged and cannot grow."""


class DiskWatch:
    """A context manager that reports disk errors of a partition to its node and lets them propagate.

    If the process lacks a resource such as file handles and the log is unchanged, only the caller sees the error.
    """

    __slots__ = ("_effects", "_partition")

    def __init__(self, partition: Partition, effects: PartitionEffects) -> None:
        self._partition = partition
        self._effects = effects

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TidelogError):
            self.report(error)

    def report(self, error: TidelogError) -> None:
        """Report an error of the partition's log to the node if it is one of the disk."""
        failure = self._partition.log.failure
        fault = fault_of(error)
        if failure is not None or fault in (Fault.DISK, Fault.REPLICA):
            self._effects.storage_failed(self._partition, failure or error)
        elif fault is Fault.FULL:
            self._effects.disk_is_full(self._partition, error)
