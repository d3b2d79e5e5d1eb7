"""Raft without I/O: events in, commands out."""

from tidelog_quorum.raft.core.commands import (
    Command,
    Commit,
    CompactLog,
    InstallSnapshot,
    LeaderChanged,
    Persist,
    ProposalAccepted,
    ProposalRejected,
    ReadFailed,
    ReadReady,
    RequestRefused,
    RestoreSnapshot,
    Send,
    SendSnapshot,
    StoreChunk,
    TransferDone,
    VoterChangeAccepted,
    VotersChanged,
)
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.events import (
    AddVoterRequested,
    Event,
    MessageReceived,
    Persisted,
    Proposed,
    ReadRequested,
    RemoveVoterRequested,
    SnapshotDamaged,
    SnapshotTaken,
    Tick,
    TransferRequested,
    UpdateVoterRequested,
)
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    FollowRequest,
    HardState,
    Message,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.progress import ReplicaState
from tidelog_quorum.raft.core.raft import Raft
from tidelog_quorum.raft.core.replica import Candidate, Follower, RandomSource
from tidelog_quorum.raft.core.voters import Voter, VoterSet
