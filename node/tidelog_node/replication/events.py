"""What happens to a partition's replica: the inputs of :class:`~tidelog_node.replication.state.PartitionState`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.replication.progress import FetchLease
from tidelog_node.replication.truncation import EpochEnd


@dataclass(frozen=True, slots=True)
class RegistrationChanged:
    """The metadata log has a new state of the partition; ``log_end_offset`` is this replica's own."""

    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class EligibleBrokersChanged:
    """The brokers that may be in an ISR, that is neither fenced nor shutting down, with their epochs (KIP-841/903).

    ``registered`` has the epochs of all brokers, fenced or not.
    """

    epochs: Mapping[BrokerId, BrokerEpoch]
    registered: Mapping[BrokerId, BrokerEpoch]


@dataclass(frozen=True, slots=True)
class MinIsrChanged:
    """The topic's ``min.insync.replicas`` is now ``min_insync_replicas``."""

    min_insync_replicas: int


class RecordsAppended(NamedTuple):
    """This replica leads and has appended: its log now ends at ``log_end_offset``."""

    log_end_offset: int


class FollowerFetched(NamedTuple):
    """A follower asked this leader for ``fetch_offset``, and its log was found to match up to there.

    ``log_start_offset`` is where the follower's log starts. Not to be sent for a fetch that was answered with an error
    or a diverging epoch: such a fetch proves nothing.
    """

    replica_id: BrokerId
    replica_epoch: BrokerEpoch
    fetch_offset: int
    log_start_offset: int
    lease: FetchLease | None = None
    """Of the session that the fetch belongs to."""


class FetchLeaseEnded(NamedTuple):
    """The next fetch of the follower's session is none of this partition as it is, or is looked at by itself."""

    replica_id: BrokerId
    lease: FetchLease


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Some time passed; a leader looks for followers that lag behind."""


@dataclass(frozen=True, slots=True)
class IsrChangeAccepted:
    """The controller's answer to proposal ``proposal_id``: its state of the partition from now on."""

    proposal_id: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class IsrChangeRefused:
    """Proposal ``proposal_id`` failed with ``code``; a lost or timed-out call has an unknown outcome and counts too."""

    proposal_id: int
    code: ErrorCode


class RecordsReplicated(NamedTuple):
    """A fetch sent in ``leader_epoch`` was answered and its records, if any, were appended to this follower's log.

    ``log_end_offset`` and ``log_start_offset`` are this follower's own.
    """

    leader_epoch: LeaderEpoch
    log_end_offset: int
    log_start_offset: int
    leader_high_watermark: int
    leader_log_start_offset: int


@dataclass(frozen=True, slots=True)
class LogDiverged:
    """The leader of ``leader_epoch`` reported where this follower's log leaves its own (KIP-595's diverging epoch).

    ``leader_end`` is the leader's largest epoch not above this follower's last one, and where it ends there;
    ``own_end`` is the same question asked of the own log for that epoch, None when it knows none as late.
    """

    leader_epoch: LeaderEpoch
    leader_end: EpochEnd
    own_end: EpochEnd | None
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class LogOutOfRange:
    """The leader of ``leader_epoch`` has no longer, or not yet, the offset at which this follower's log ends."""

    leader_epoch: LeaderEpoch
    leader_log_start_offset: int
    log_start_offset: int
    log_end_offset: int


Event: TypeAlias = (
    RegistrationChanged
    | EligibleBrokersChanged
    | MinIsrChanged
    | RecordsAppended
    | FollowerFetched
    | FetchLeaseEnded
    | TimePassed
    | IsrChangeAccepted
    | IsrChangeRefused
    | RecordsReplicated
    | LogDiverged
    | LogOutOfRange
)
