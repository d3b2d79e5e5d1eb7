"""Inputs of :class:`~tidelog_node.replication.state.PartitionState`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.replication.progress import FetchLease
from tidelog_node.replication.truncation import EpochEnd

_NEVER_A_MIRROR = LeaderEpoch(0)


@dataclass(frozen=True, slots=True)
class RegistrationChanged:
    """The metadata log has a new state of the partition; ``log_end_offset`` is this replica's own.

    The leader of a partition that ``is_mirror`` copies the partition of another cluster. ``mirror_end_epoch`` is the
    leader epoch in which this ended, 0 if it is or was no mirror.
    """

    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    log_end_offset: int
    is_mirror: bool = False
    mirror_end_epoch: LeaderEpoch = _NEVER_A_MIRROR


@dataclass(frozen=True, slots=True)
class EligibleBrokersChanged:
    """The brokers that may join an ISR, with their epochs: neither fenced nor shutting down (KIP-841/903).

    ``registered`` has the epochs of all brokers, fenced or not.
    """

    epochs: Mapping[BrokerId, BrokerEpoch]
    registered: Mapping[BrokerId, BrokerEpoch]


@dataclass(frozen=True, slots=True)
class MinIsrChanged:
    """The topic's ``min.insync.replicas`` is now ``min_insync_replicas``."""

    min_insync_replicas: int


class RecordsAppended(NamedTuple):
    """This replica appended records as the leader; its log now ends at ``log_end_offset``."""

    log_end_offset: int


class LogCut(NamedTuple):
    """This leader of a mirror truncated its log by the source's answer; it now ends at ``log_end_offset``."""

    log_end_offset: int


class LogRestarted(NamedTuple):
    """This leader of a mirror dropped its log, because the source begins later; it starts and ends at ``offset``."""

    offset: int


class SourceStartMoved(NamedTuple):
    """The source of a mirror has no records below ``source_log_start_offset``; ``log_start_offset`` is this log's."""

    source_log_start_offset: int
    log_start_offset: int


class FollowerFetched(NamedTuple):
    """A follower fetched at ``fetch_offset``, and its log matches the leader's up to there.

    ``log_start_offset`` is the start of the follower's log. Do not send this event for a fetch that was answered with
    an error or a diverging epoch: such a fetch proves nothing.
    """

    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    fetch_offset: int
    log_start_offset: int
    lease: FetchLease | None = None
    """The lease of the fetch's session."""


class FetchLeaseEnded(NamedTuple):
    """The lease ended: later fetches of the follower's session do not count as fetches of this partition."""

    replica_id: BrokerId
    lease: FetchLease


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time passed. A leader checks for followers that lag behind."""


@dataclass(frozen=True, slots=True)
class IsrChangeAccepted:
    """The controller accepted proposal ``proposal_id`` and returned its new state of the partition."""

    proposal_id: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class IsrChangeRefused:
    """Proposal ``proposal_id`` failed with ``code``. A lost or timed-out call has an unknown outcome."""

    proposal_id: int
    code: ErrorCode


class RecordsReplicated(NamedTuple):
    """A fetch of ``leader_epoch`` was answered, and this follower appended its records, if any.

    ``log_end_offset`` and ``log_start_offset`` are this follower's own.
    """

    leader_epoch: LeaderEpoch
    log_end_offset: int
    log_start_offset: int
    leader_high_watermark: int
    leader_log_start_offset: int


@dataclass(frozen=True, slots=True)
class LogDiverged:
    """The leader of ``leader_epoch`` reported a diverging epoch for this follower's log (KIP-595).

    ``leader_end`` is the end of the leader's largest epoch that is not above this follower's last one. ``own_end`` is
    the same lookup in the follower's log for that epoch, None when the follower's log has only later epochs.
    """

    leader_epoch: LeaderEpoch
    leader_end: EpochEnd
    own_end: EpochEnd | None
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class LogOutOfRange:
    """The leader of ``leader_epoch`` does not have the offset at which this follower's log ends."""

    leader_epoch: LeaderEpoch
    leader_log_start_offset: int
    log_start_offset: int
    log_end_offset: int


Event: TypeAlias = (
    RegistrationChanged
    | EligibleBrokersChanged
    | MinIsrChanged
    | RecordsAppended
    | LogCut
    | LogRestarted
    | SourceStartMoved
    | FollowerFetched
    | FetchLeaseEnded
    | TimePassed
    | IsrChangeAccepted
    | IsrChangeRefused
    | RecordsReplicated
    | LogDiverged
    | LogOutOfRange
)
