"""Raft without I/O: events in, commands out."""

from tidelog_quorum.raft.core.commands import (
    Command,
    Commit,
    LeaderChanged,
    Persist,
    ProposalAccepted,
    ProposalRejected,
    ReadFailed,
    ReadReady,
    Send,
)
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.events import Event, MessageReceived, Persisted, Proposed, ReadRequested, Tick
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Message,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.raft import Candidate, Follower, Raft, RandomMs

__all__ = [
    "AppendRequest",
    "AppendResponse",
    "Candidate",
    "Command",
    "Commit",
    "Entry",
    "EntryKind",
    "Event",
    "Follower",
    "HardState",
    "LeaderChanged",
    "Leadership",
    "Message",
    "MessageReceived",
    "Persist",
    "Persisted",
    "ProposalAccepted",
    "ProposalRejected",
    "Proposed",
    "Raft",
    "RaftConfig",
    "RandomMs",
    "ReadFailed",
    "ReadReady",
    "ReadRequested",
    "Send",
    "Tick",
    "VoteRequest",
    "VoteResponse",
]
