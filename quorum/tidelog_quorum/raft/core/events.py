"""Events: the inputs of :meth:`tidelog_quorum.raft.core.raft.Raft.step`."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import Message, Snapshot
from tidelog_quorum.raft.core.voters import Voter


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at the latest at ``next_deadline_ms``."""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """Another replica's message has arrived. It may be late, duplicated or out of order.

    ``directory_id`` is the sender's, from its hello; empty if unknown. ``endpoints`` are the addresses of the
    sender's listeners, by its hello.
    """

    message: Message
    directory_id: bytes = b""
    endpoints: Endpoints | None = None


@dataclass(frozen=True, slots=True)
class Proposed:
    """A client of the engine proposes ``payload``, if this voter still leads in ``epoch``."""

    payload: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """All writes up to and including ``sequence`` would survive a crash."""

    sequence: int


@dataclass(frozen=True, slots=True)
class ReadRequested:
    """A client requests an index that covers everything committed until now."""

    request_id: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot of committed entries is on this replica's disk; the log before its end may go."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class SnapshotDamaged:
    """A received snapshot has a wrong checksum and must be sent again."""

    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class AddVoterRequested:
    """An operator requests a vote for ``voter``, as soon as it has caught up, within ``timeout_ms``."""

    request_id: int
    voter: Voter
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class RemoveVoterRequested:
    """An operator requests the removal of a voter; an empty ``directory_id`` matches any."""

    request_id: int
    voter_id: int
    directory_id: bytes


@dataclass(frozen=True, slots=True)
class UpdateVoterRequested:
    """An operator replaces the addresses of a voter; ``leader_epoch`` None and an empty directory id match any."""

    request_id: int
    voter: Voter
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class TransferRequested:
    """An operator, or a leader that is stopping, requests that ``to`` lead; None selects the most up-to-date voter."""

    request_id: int
    to: int | None
    timeout_ms: int


Event = (
    Tick
    | MessageReceived
    | Proposed
    | Persisted
    | ReadRequested
    | SnapshotTaken
    | SnapshotDamaged
    | AddVoterRequested
    | RemoveVoterRequested
    | UpdateVoterRequested
    | TransferRequested
)
