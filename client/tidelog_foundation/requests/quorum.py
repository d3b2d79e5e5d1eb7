"""Administration of the controller quorum (KIP-595, KIP-853)."""

from __future__ import annotations

from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.addresses import ControllerEndpoint, Endpoint
from tidelog_foundation.requests.request import Request
from tidelog_foundation.transport.message_codec import NOT_IN_MESSAGE


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A controller's copy of the metadata log, as the leader knows it.

    ``log_end_offset`` is the last offset known to be on its disk. The ages are the time since the leader heard from it
    and since it had all of the leader's log: 0 for the leader itself, -1 for never. ``directory_id`` is empty if it is
    unknown. ``silent_ms`` is the time since the leader heard from it, or else since the beginning of the leader's term.
    ``endpoint`` is the address of the listener with the name of the one that was called, ``endpoints`` are
    those of all listeners.
    """

    replica_id: int
    log_end_offset: int
    endpoint: Endpoint
    directory_id: bytes
    last_fetch_age_ms: int
    last_caught_up_age_ms: int
    endpoints: tuple[ControllerEndpoint, ...] = ()
    silent_ms: int = field(default=0, metadata=NOT_IN_MESSAGE)


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """The last metadata offset that a live node had applied at its last heartbeat."""

    broker_id: int
    metadata_offset: int
    last_heartbeat_age_ms: int


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    """The quorum as its leader sees it.

    ``high_watermark`` is the last committed offset. ``observers`` are the controllers without a vote, ``brokers`` the
    live nodes. ``snapshot_offset`` is that of the leader's latest snapshot, -1 for none, and ``log_start_offset`` the
    first offset in its log.
    """

    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    voters: tuple[QuorumReplica, ...] = ()
    observers: tuple[QuorumReplica, ...] = ()
    cluster_id: str = ""
    snapshot_offset: int = 0
    log_start_offset: int = 0
    brokers: tuple[BrokerProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest(Request[DescribeQuorumResponse]):
    """A request for the state of the quorum."""


@dataclass(frozen=True, slots=True)
class AddRaftVoterResponse:
    """The success of an AddRaftVoterRequest."""


@dataclass(frozen=True, slots=True)
class AddRaftVoterRequest(Request[AddRaftVoterResponse]):
    """A request to make a controller a voter. An empty ``directory_id`` accepts any directory."""

    voter_id: int
    directory_id: bytes
    endpoints: tuple[ControllerEndpoint, ...]
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class RemoveRaftVoterResponse:
    """The success of a RemoveRaftVoterRequest."""


@dataclass(frozen=True, slots=True)
class RemoveRaftVoterRequest(Request[RemoveRaftVoterResponse]):
    """A request to remove a voter. An empty ``directory_id`` matches any."""

    voter_id: int
    directory_id: bytes = b""
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class UpdateRaftVoterResponse:
    """The success of an UpdateRaftVoterRequest."""


@dataclass(frozen=True, slots=True)
class UpdateRaftVoterRequest(Request[UpdateRaftVoterResponse]):
    """A request to replace a voter's addresses. ``leader_epoch``, if given, must be the leader's."""

    voter_id: int
    directory_id: bytes
    endpoints: tuple[ControllerEndpoint, ...]
    leader_epoch: int | None = None
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class TransferLeadershipResponse:
    """The new leader."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class TransferLeadershipRequest(Request[TransferLeadershipResponse]):
    """A request to transfer the leadership; ``voter_id`` -1 chooses the most caught-up voter."""

    voter_id: int
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class TakeSnapshotResponse:
    """The last offset in the snapshot, and the first in the log."""

    snapshot_offset: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class TakeSnapshotRequest(Request[TakeSnapshotResponse]):
    """A request for a snapshot of the called controller's state."""
