"""What a voter remembers and what voters say to each other.

Every message carries its sender and the sender's term. A receiver drops what is of an older term than its
own, so that no answer to a question of an earlier term can be counted in a later one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EntryKind(enum.IntEnum):
    """What an entry's payload is."""

    DATA = 0
    NO_OP = 1
    """The first entry of a leader's term: lets it commit, and learn, what its predecessors left (paper 5.4.2, 8)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log. Indexes begin at 1 and have no gaps; terms never fall from one to the next."""

    index: int
    term: int
    kind: EntryKind
    payload: bytes


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


Message = VoteRequest | VoteResponse | AppendRequest | AppendResponse
