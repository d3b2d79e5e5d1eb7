"""Outputs of ``PartitionState.step``: actions that a partition's replica carries out in order."""

from __future__ import annotations

from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch


@dataclass(frozen=True, slots=True)
class AssignEpochStart:
    """Record in the log's epoch cache that ``leader_epoch`` begins at ``offset``, before the partition serves a
    request.
    """

    leader_epoch: LeaderEpoch
    offset: int


@dataclass(frozen=True, slots=True)
class AbortMirroredTransactions:
    """Abort the open transactions that began before leader epoch ``end_epoch``, in which the partition ceased to be a
    mirror. Their coordinators are in the cluster of the source.
    """

    end_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Publish ``offset`` as the new high watermark and wake the requests that wait for it."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Delete the records below ``offset``. They are committed, and the leader has deleted them (KIP-107)."""

    offset: int


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Answer every waiting producer and consumer NOT_LEADER_OR_FOLLOWER: a new leader may truncate the records."""


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Send this set to the controller (AlterPartition, KIP-497) and feed the answer back with the same id.

    ``isr`` maps each member to its last known broker epoch, or to -1 (KIP-903).
    """

    proposal_id: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch from ``leader_id`` as a follower in ``leader_epoch``. This replaces any earlier fetching."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Stop fetching: this replica leads, or the partition has no leader."""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log, and its epoch cache, at ``offset`` (exclusive)."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartLogAt:
    """Drop the whole log and restart it at ``offset``."""

    offset: int


Command: TypeAlias = (
    AssignEpochStart
    | AbortMirroredTransactions
    | AdvanceHighWatermark
    | AdvanceLogStart
    | LeadershipLost
    | ProposeIsr
    | StartFetching
    | StopFetching
    | TruncateTo
    | RestartLogAt
)
