"""Inputs of :class:`~tidelog_node.hosting.replicas.HostedReplicas`, from the metadata, the disks and the partitions."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeAlias

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId, LeaderEpoch, TopicId
from tidelog_node.hosting.states import LastState, PartitionKey
from tidelog_quorum.metadata.delta import MetadataDelta
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.registrations import PartitionRegistration


@dataclass(frozen=True, slots=True)
class ImageChanged:
    """The metadata is now ``image``, which differs from the last one by ``delta``. ``Proceed`` follows."""

    image: MetadataImage
    delta: MetadataDelta


class Proceed(NamedTuple):
    """The earlier commands are complete; begin the next step of an image's changes."""


@dataclass(frozen=True, slots=True)
class DefaultsChanged:
    """The node's own topic settings changed. Replicas get them with the next image."""

    defaults: TopicConfig


@dataclass(frozen=True, slots=True)
class LogOpened:
    """The log of an ``OpenLog`` is open in a log directory."""

    key: PartitionKey
    directory: Path


@dataclass(frozen=True, slots=True)
class OpenRefused:
    """The log of an ``OpenLog`` was not opened.

    ``directory`` is the log directory that refused to open it, None if none was tried. An ``error`` without a cause is
    the refusal of a rule.
    """

    key: PartitionKey
    directory: Path | None
    error: TidelogError


class RegistrationTaken(NamedTuple):
    """The partition's state machine has accepted the registration of a ``ChangeRegistration``."""

    key: PartitionKey
    registration: PartitionRegistration


@dataclass(frozen=True, slots=True)
class ReplicaRefused:
    """The disk refused the files of an open replica; ``last_state`` is that of its log.

    Without a ``key`` the replica was removed, or is offline already.
    """

    key: PartitionKey | None
    error: TidelogError
    last_state: LastState


class LeaderFollowed(NamedTuple):
    """The partition's state machine follows a leader."""

    key: PartitionKey
    leader_id: BrokerId
    leader_epoch: LeaderEpoch


class LeaderUnfollowed(NamedTuple):
    """The partition's state machine leads, or has no leader."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class AppendRefused:
    """A full disk refused an append and left the log unchanged.

    ``successors`` are the other in-sync brokers that may lead, None when this replica does not lead.
    """

    key: PartitionKey
    error: TidelogError
    successors: frozenset[BrokerId] | None


@dataclass(frozen=True, slots=True)
class SpaceMeasured:
    """The file system of a log directory has ``free`` bytes left, or -1 if it does not report them."""

    directory: Path
    free: int


@dataclass(frozen=True, slots=True)
class DirectoryFailed:
    """A log directory is offline until the next start.

    ``replicas`` have open logs in it. ``found`` are the replicas whose logs the start found there and no image has
    named.
    """

    directory: Path
    error: TidelogError
    replicas: tuple[PartitionKey, ...] = ()
    found: tuple[tuple[PartitionKey, TopicId], ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionScheduled:
    """The folder of a deleted replica was renamed to ``path`` and is removed after a delay; None: no folder."""

    key: PartitionKey
    path: Path | None
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class DeletionRefused:
    """The folder of a deleted replica could not be renamed."""

    key: PartitionKey
    directory: Path
    delay_ms: int
    error: TidelogError


@dataclass(frozen=True, slots=True)
class StrayRenamed:
    """The folder of an earlier topic with the same name was renamed."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class ReplicaMoved:
    """The log of a replica moved to another log directory; ``folder`` is the earlier one, renamed."""

    key: PartitionKey
    directory: Path
    folder: Path
    delay_ms: int


@dataclass(frozen=True, slots=True)
class DirectoryPreferred:
    """An operator chose the log directory of a replica that this node does not have."""

    key: PartitionKey
    directory: Path


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time passed. Folders may be due for removal."""


@dataclass(frozen=True, slots=True)
class RetryDue:
    """Check whether full disks have room."""


@dataclass(frozen=True, slots=True)
class RetryFolder:
    """Try to rename the folder of a deleted replica again."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class RetryReplica:
    """Try to open a replica again."""

    key: PartitionKey


Event: TypeAlias = (
    ImageChanged
    | Proceed
    | DefaultsChanged
    | LogOpened
    | OpenRefused
    | RegistrationTaken
    | ReplicaRefused
    | LeaderFollowed
    | LeaderUnfollowed
    | AppendRefused
    | SpaceMeasured
    | DirectoryFailed
    | DeletionScheduled
    | DeletionRefused
    | StrayRenamed
    | ReplicaMoved
    | DirectoryPreferred
    | TimePassed
    | RetryDue
    | RetryFolder
    | RetryReplica
)
