"""The persistent state of a voter and the messages between voters.

Every message carries its sender and the sender's term. A receiver drops messages of a term older than its own, so no
answer to a question of an earlier term can count in a later one.
"""

from __future__ import annotations

import enum

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.raft.core.voters import VoterSet

_VOTER_BYTES = 64
UNKNOWN_VOTER = -1
"""The id of a receiver that is not known yet: the controller that listens at a bootstrap address."""


class EntryKind(enum.IntEnum):
    """The kind of an entry, which determines its content."""

    DATA = 0
    NO_OP = 1
    """The first entry of a term; it lets the leader commit, and learn of, its predecessors' entries (paper 5.4.2, 8).
    """
    VOTERS = 2
    """The entry has a set of voters, in force from its append (thesis 4.1)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. Indexes start at 1 and have no gaps; terms never decrease from one to the next.

    ``payload`` is empty unless the kind is DATA; ``voters`` is None unless the kind is VOTERS.
    """

    index: int
    term: int
    kind: EntryKind
    payload: bytes = b""
    voters: VoterSet | None = None

    @property
    def size(self) -> int:
        """The bytes that the entry takes of a limit, about."""
        if self.voters is None:
            return len(self.payload)
        return sum(_VOTER_BYTES * max(1, len(voter.endpoints)) for voter in self.voters)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A replacement for all entries up to ``last_index`` (paper 7): ``size`` bytes with the CRC-32C ``checksum``.

    ``voters`` are those in force at ``last_index``. Equal values mean equal bytes, so another leader can continue the
    transfer.
    """

    last_index: int
    last_term: int
    voters: VoterSet
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class HardState:
    """The state besides the log that must survive a crash: the latest term seen and the vote given in it (figure 2)."""

    term: int = 0
    voted_for: int | None = None


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A request for a vote in ``term``; with ``pre_vote``, whether a vote in ``term + 1`` is possible (thesis 9.6)."""

    sender_id: int
    term: int
    pre_vote: bool
    last_index: int
    last_term: int
    transfer: bool = False
    """The leader asked the sender to take over; voters that hear from that leader answer all the same (thesis 4.2.3).
    """


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """The answer to a :class:`VoteRequest`; ``term`` is the voter's own."""

    sender_id: int
    term: int
    pre_vote: bool
    granted: bool


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Entries that follow ``prev_index``; without entries a heartbeat, a probe or news of the commit index."""

    sender_id: int
    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    entries: tuple[Entry, ...]
    read_context: int


@dataclass(frozen=True, slots=True)
class AppendResponse:
    """The answer to an :class:`AppendRequest`.

    On success ``match_index`` is the last index that the request proved equal and that is on the follower's disk.
    Otherwise ``match_index`` and ``conflict_term`` are the index and term of the latest entry that may still be equal,
    and ``rejected_prev_index`` identifies the request.
    """

    sender_id: int
    term: int
    success: bool
    match_index: int
    conflict_term: int
    rejected_prev_index: int
    read_context: int


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """One chunk of a snapshot, from ``position`` on (paper, figure 13)."""

    sender_id: int
    term: int
    snapshot: Snapshot
    position: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """The answer to a :class:`SnapshotRequest`: ``position`` of the next chunk; ``done`` once all is on disk."""

    sender_id: int
    term: int
    last_index: int
    last_term: int
    position: int
    done: bool


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """The leader asks the receiver to start an election at once, without pre-vote (thesis 3.10)."""

    sender_id: int
    term: int


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """A request of a replica that has no vote and hears no leader: send me the log (KIP-853's observers).

    It goes to every known voter, and to :data:`UNKNOWN_VOTER` when there is none.
    """

    sender_id: int
    term: int
    last_index: int
    last_term: int


Message = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendResponse
    | SnapshotRequest
    | SnapshotResponse
    | TimeoutNow
    | FollowRequest
)
