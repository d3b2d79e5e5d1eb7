"""What a voter remembers and what voters say to each other.

Every message carries its sender and the sender's term. A receiver drops what is of an older term than its
own, so that no answer to a question of an earlier term can be counted in a later one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tidelog_quorum.raft.core.voters import VoterSet

UNKNOWN_VOTER = -1
"""Stands for a receiver whose id is not known: whoever listens at a bootstrap address."""


class EntryKind(enum.IntEnum):
    """What an entry's payload is."""

    DATA = 0
    NO_OP = 1
    """The first entry of a leader's term: lets it commit, and learn, what its predecessors left (paper 5.4.2, 8)."""
    VOTERS = 2
    """The payload is a :class:`~tidelog_quorum.raft.core.voters.VoterSet`, in force from its append (thesis 4.1)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. Indexes begin at 1 and have no gaps; terms never fall from one to the next."""

    index: int
    term: int
    kind: EntryKind
    payload: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What stands for all entries up to ``last_index`` (paper 7): ``size`` bytes with a CRC-32C of ``checksum``.

    ``voters`` are those in force at ``last_index``. Equal values stand for equal bytes, so the transfer of one
    can go on where another leader's ended.
    """

    last_index: int
    last_term: int
    voters: VoterSet
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class HardState:
    """What must survive a crash beside the log: the latest term seen and the vote given in it (figure 2)."""

    term: int = 0
    voted_for: int | None = None


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Asks for a vote in ``term``; with ``pre_vote``, whether a vote in ``term + 1`` would be given (thesis 9.6)."""

    sender_id: int
    term: int
    pre_vote: bool
    last_index: int
    last_term: int
    transfer: bool = False
    """The leader has asked the sender to take over: who hears from that leader answers all the same (thesis 4.2.3)."""


@dataclass(frozen=True, slots=True)
class VoteResponse:
    """Answers a :class:`VoteRequest`; ``term`` is the voter's own."""

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
    """Answers an :class:`AppendRequest`.

    On success ``match_index`` is the last index that the request proved equal and that is on the follower's
    disk. Else ``match_index`` and ``conflict_term`` are the index and term of the latest entry that may still
    be equal, and ``rejected_prev_index`` tells which request is meant.
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
    """Answers a :class:`SnapshotRequest`: ``position`` is wanted next; ``done`` once the whole is on disk."""

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
    """From one that has no vote and hears no leader: it wants to be sent the log (KIP-853's observers).

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
