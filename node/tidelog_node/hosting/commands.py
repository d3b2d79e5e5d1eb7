"""Outputs of :class:`~tidelog_node.hosting.replicas.HostedReplicas`, in order of execution.

The shell completes each command, with its events, before it begins the next. :class:`Work` may take a while, in threads
or in slices of the event loop. Every other command completes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, DirectoryId, LeaderEpoch, TopicId
from tidelog_node.broker.report import Report
from tidelog_node.hosting.states import LastState, PartitionKey
from tidelog_node.replication.events import EligibleBrokersChanged
from tidelog_node.replication.isr import FormerLeadership
from tidelog_quorum.metadata.registrations import PartitionRegistration


@dataclass(frozen=True, slots=True)
class ChangeEligible:
    """Give the state machine of one partition the brokers that may join an ISR."""

    key: PartitionKey
    brokers: EligibleBrokersChanged


class ChangeRegistration(NamedTuple):
    """Give a partition's state machine its metadata registration: ``RegistrationTaken`` or ``ReplicaRefused``."""

    key: PartitionKey
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class TakeOffline:
    """Answer every request that waits for a replica with an error, and close its log soon."""

    key: PartitionKey
    error: TidelogError


@dataclass(frozen=True, slots=True)
class BeginFetcher:
    """Start a fetcher for a leader."""

    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class EndFetcher:
    """Stop the fetcher of a leader."""

    leader_id: BrokerId


class AddToFetcher(NamedTuple):
    """Add a partition to a leader's fetcher in a leader epoch, in place of an earlier one."""

    key: PartitionKey
    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class RemoveFromFetcher(NamedTuple):
    """Remove a partition from a leader's fetcher."""

    key: PartitionKey
    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class PauseFetches:
    """Delay added partitions until ``ResumeFetches``: many follow, and each would interrupt a poll."""


@dataclass(frozen=True, slots=True)
class ResumeFetches:
    """Start the fetches that ``PauseFetches`` delayed."""


@dataclass(frozen=True, slots=True)
class AssignDirectory:
    """Report a replica's log directory to the controller (KIP-858); ``keeps_log``: its log was never lost."""

    topic_id: TopicId
    index: int
    directory: DirectoryId
    keeps_log: bool = False


@dataclass(frozen=True, slots=True)
class FailDirectory:
    """Take a log directory offline. Feeds back ``DirectoryFailed``, unless it is offline already."""

    directory: Path
    error: TidelogError


@dataclass(frozen=True, slots=True)
class ReportDirectories:
    """Send a heartbeat with the offline directories to the controller at once."""


@dataclass(frozen=True, slots=True)
class FailNode:
    """Stop the node, because no log directory is left."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Work:
    """A command that may take a while. Other events may occur meanwhile, but no other work runs."""


@dataclass(frozen=True, slots=True)
class ChangeBrokers(Work):
    """Give the state machines of all partitions the brokers that may join an ISR."""

    brokers: EligibleBrokersChanged


@dataclass(frozen=True, slots=True)
class ChangeConfigs(Work):
    """Apply topic settings to the partitions that are still open."""

    configs: tuple[tuple[PartitionKey, TopicConfig], ...]


@dataclass(frozen=True, slots=True)
class CancelMove(Work):
    """Cancel the move of a replica to another log directory, if there is one."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class DeleteReplica(Work):
    """Close an open replica and rename its folder: ``DeletionScheduled`` or ``DeletionRefused``.

    Unless the partition ``is_gone``, other nodes host it now, and waiting clients may ask its leader.
    """

    key: PartitionKey
    is_gone: bool


@dataclass(frozen=True, slots=True)
class ScheduleDeletion(Work):
    """Rename the folder of a replica that is not open: ``DeletionScheduled`` or ``DeletionRefused``.

    Without a ``directory`` the folder is in any online log directory, or in none.
    """

    key: PartitionKey
    directory: Path | None
    delay_ms: int


@dataclass(frozen=True, slots=True)
class RemoveFolder(Work):
    """Remove a renamed folder."""

    path: Path


@dataclass(frozen=True, slots=True)
class OpenLog(Work):
    """Open a replica's log in its folder, or create it: ``LogOpened`` or ``OpenRefused``.

    ``assigned`` is the directory in the metadata. The rules against a loss of records use ``is_in_sync`` and
    ``is_new``, see :mod:`tidelog_node.hosting.placement`. ``last_state`` is set for a replica that is opened again.
    """

    key: PartitionKey
    topic_id: TopicId
    config: TopicConfig
    assigned: DirectoryId
    is_in_sync: bool
    is_new: bool
    preferred: Path | None = None
    is_retry: bool = False
    last_state: LastState | None = None

    @property
    def leadership(self) -> FormerLeadership | None:
        """The leadership of a replica that led when its log was closed."""
        return None if self.last_state is None else self.last_state.leadership


@dataclass(frozen=True, slots=True)
class CreateLogs(Work):
    """Create the logs of many new replicas together. The ``OpenLog`` of each finds its log."""

    logs: tuple[OpenLog, ...]


@dataclass(frozen=True, slots=True)
class RenameToStray(Work):
    """Rename the folder of an earlier topic with the same name: ``StrayRenamed`` or ``OpenRefused``."""

    key: PartitionKey
    directory: Path


@dataclass(frozen=True, slots=True)
class MeasureSpace(Work):
    """Read the free space in the file system of a log directory: ``SpaceMeasured``."""

    directory: Path


FetcherCommand: TypeAlias = BeginFetcher | EndFetcher | AddToFetcher | RemoveFromFetcher | PauseFetches | ResumeFetches
Effect: TypeAlias = (
    ChangeEligible
    | ChangeRegistration
    | TakeOffline
    | FetcherCommand
    | AssignDirectory
    | FailDirectory
    | ReportDirectories
    | FailNode
    | Report
)
"""Commands that complete at once."""
SomeWork: TypeAlias = (
    ChangeBrokers
    | ChangeConfigs
    | CancelMove
    | DeleteReplica
    | ScheduleDeletion
    | RemoveFolder
    | OpenLog
    | CreateLogs
    | RenameToStray
    | MeasureSpace
)
Command: TypeAlias = Effect | SomeWork
