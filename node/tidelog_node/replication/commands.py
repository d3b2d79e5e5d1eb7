"""What a partition's replica wants done, in this order: the outputs of ``PartitionState.step``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch


@dataclass(frozen=True, slots=True)
class AssignEpochStart:
    """Write to the log's epoch cache that ``leader_epoch`` begins at ``offset``, before anything is served."""

    leader_epoch: LeaderEpoch
    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """The high watermark is now ``offset``: wake whoever waits for it."""

    offset: int


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Records below ``offset``, which are committed, were deleted on the leader: delete them here too (KIP-107)."""

    offset: int


@dataclass(frozen=True, slots=True)
class LeadershipLost:
    """Answer every waiting producer and consumer NOT_LEADER_OR_FOLLOWER: the records may yet be truncated."""


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Send this set to the controller (AlterPartition, KIP-497) and feed the answer back with the same id.

    ``isr`` holds the broker epoch that each member was last seen with, -1 when none was (KIP-903).
    """

    proposal_id: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[tuple[BrokerId, BrokerEpoch], ...]


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch from ``leader_id`` as a follower in ``leader_epoch``, in place of any earlier fetching."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class StopFetching:
    """Fetch no more: this replica leads, or nobody does."""


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut the log, and its epoch cache, at ``offset`` (exclusive)."""

    offset: int


@dataclass(frozen=True, slots=True)
class RestartLogAt:
    """Drop the whole log and begin again at ``offset``."""

    offset: int


Command: TypeAlias = (
    AssignEpochStart
    | AdvanceHighWatermark
    | AdvanceLogStart
    | LeadershipLost
    | ProposeIsr
    | StartFetching
    | StopFetching
    | TruncateTo
    | RestartLogAt
)
