"""Outputs of :class:`~tidelog_node.hosting.replicas.HostedReplicas`, to be done in this order.

Each is done before the next one begins, its own events included. :class:`Work` may take a while, in threads or in
slices of the event loop; everything else is done at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, DirectoryId, LeaderEpoch, TopicId
from tidelog_node.broker.report import Report
from tidelog_node.hosting.states import LastState, PartitionKey
from tidelog_node.replication.events import EligibleBrokersChanged
from tidelog_quorum.metadata import PartitionRegistration, TopicConfig


@dataclass(frozen=True, slots=True)
class ChangeEligible:
    """Tell the state machine of one partition the brokers that may be in an ISR."""

    key: PartitionKey
    brokers: EligibleBrokersChanged


class ChangeRegistration(NamedTuple):
    """Give a partition's state machine the metadata's state of it: ``RegistrationTaken`` or ``ReplicaRefused``."""

    key: PartitionKey
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class TakeOffline:
    """Answer everybody who waits for a replica with an error, and close its log soon."""

    key: PartitionKey
    error: TidelogError


@dataclass(frozen=True, slots=True)
class BeginFetcher:
    """Begin to fetch from a leader."""

    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class EndFetcher:
    """Fetch from a leader no more."""

    leader_id: BrokerId


class AddToFetcher(NamedTuple):
    """Let a leader's fetcher copy a partition in a leader epoch, in place of an earlier one."""

    key: PartitionKey
    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class RemoveFromFetcher(NamedTuple):
    """Let a leader's fetcher copy a partition no more."""

    key: PartitionKey
    leader_id: BrokerId


@dataclass(frozen=True, slots=True)
class HoldFetches:
    """Let added partitions wait for ``ReleaseFetches``: many are coming, and each would interrupt a poll."""


@dataclass(frozen=True, slots=True)
class ReleaseFetches:
    """Fetch what was held."""


@dataclass(frozen=True, slots=True)
class AssignDirectory:
    """Tell the controller in which log directory a replica is (KIP-858); ``keeps_log``: its log was never lost."""

    topic_id: TopicId
    index: int
    directory: DirectoryId
    keeps_log: bool = False


@dataclass(frozen=True, slots=True)
class FailDirectory:
    """Take a log directory offline: ``DirectoryFailed``, unless it is offline already."""

    directory: Path
    error: TidelogError


@dataclass(frozen=True, slots=True)
class ReportDirectories:
    """Tell the controller with the next heartbeat, at once, which directories are offline."""


@dataclass(frozen=True, slots=True)
class FailNode:
    """Stop the node: no log directory is left."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Work:
    """A command that may take a while. Others may happen meanwhile, but no other work."""


@dataclass(frozen=True, slots=True)
class ChangeBrokers(Work):
    """Tell the state machines of all partitions the brokers that may be in an ISR."""

    brokers: EligibleBrokersChanged


@dataclass(frozen=True, slots=True)
class ChangeConfigs(Work):
    """Give partitions their topics' settings, where they are still open."""

    configs: tuple[tuple[PartitionKey, TopicConfig], ...]


@dataclass(frozen=True, slots=True)
class CancelMove(Work):
    """End the move of a replica to another log directory, if there is one."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class DeleteReplica(Work):
    """Close an open replica and rename its folder: ``FolderCondemned`` or ``CondemnRefused``.

    Unless the partition ``is_gone``, others hold it now: whoever waits may ask its leader.
    """

    key: PartitionKey
    is_gone: bool


@dataclass(frozen=True, slots=True)
class CondemnFolder(Work):
    """Rename the folder of a replica that is not open: ``FolderCondemned`` or ``CondemnRefused``.

    Without a ``directory`` it is in any log directory that is online, or in none.
    """

    key: PartitionKey
    directory: Path | None
    delay_ms: int


@dataclass(frozen=True, slots=True)
class RemoveFolder(Work):
    """Remove a folder that was renamed."""

    path: Path


@dataclass(frozen=True, slots=True)
class OpenLog(Work):
    """Open a replica's log where its folder is, or create it: ``LogOpened`` or ``OpenRefused``.

    ``assigned`` is where the metadata has it. ``is_in_sync`` and ``is_new`` are what the rules against a loss of
    records go by, see :mod:`tidelog_node.hosting.placement`. ``last_state`` is that of a replica that is opened again.
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


@dataclass(frozen=True, slots=True)
class CreateLogs(Work):
    """Create the logs of many new replicas at a time, for the ``OpenLog`` of each to find."""

    logs: tuple[OpenLog, ...]


@dataclass(frozen=True, slots=True)
class SetAside(Work):
    """Rename the folder of an earlier topic of the name: ``FolderSetAside`` or ``OpenRefused``."""

    key: PartitionKey
    directory: Path


@dataclass(frozen=True, slots=True)
class MeasureSpace(Work):
    """Ask the file system of a log directory how much room it has: ``SpaceMeasured``."""

    directory: Path


FetcherCommand: TypeAlias = BeginFetcher | EndFetcher | AddToFetcher | RemoveFromFetcher | HoldFetches | ReleaseFetches
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
"""What is done at once."""
SomeWork: TypeAlias = (
    ChangeBrokers
    | ChangeConfigs
    | CancelMove
    | DeleteReplica
    | CondemnFolder
    | RemoveFolder
    | OpenLog
    | CreateLogs
    | SetAside
    | MeasureSpace
)
Command: TypeAlias = Effect | SomeWork
