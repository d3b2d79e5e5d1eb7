"""The shell around the Raft core: gives it time, a disk and a network, and does what it commands."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, assert_never

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.v1.raft_service_pb2_grpc import add_RaftServiceServicer_to_server
from tidelog_quorum.raft.codec import MAX_ENTRY_BYTES
from tidelog_quorum.raft.core import (
    Command,
    Commit,
    EntryKind,
    Event,
    LeaderChanged,
    Message,
    MessageReceived,
    Persist,
    Persisted,
    ProposalAccepted,
    ProposalRejected,
    Proposed,
    Raft,
    RaftConfig,
    RandomMs,
    ReadFailed,
    ReadReady,
    ReadRequested,
    Send,
    Tick,
)
from tidelog_quorum.raft.core.commands import (
    CompactLog,
    InstallSnapshot,
    RequestRefused,
    RestoreSnapshot,
    SendSnapshot,
    StoreChunk,
    TransferDone,
    VoterChangeAccepted,
    VotersChanged,
)
from tidelog_quorum.raft.core.events import (
    AddVoterRequested,
    RemoveVoterRequested,
    SnapshotDamaged,
    SnapshotTaken,
    TransferRequested,
)
from tidelog_quorum.raft.core.messages import FollowRequest, Snapshot, SnapshotRequest
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.delivery import Delivery
from tidelog_quorum.raft.description import describe_quorum
from tidelog_quorum.raft.links import Resolve, resolve_address
from tidelog_quorum.raft.peers import Introduction, Peers
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, QuorumDescription, RaftEngine, RaftListener
from tidelog_quorum.raft.receiver import RaftReceiver
from tidelog_quorum.raft.requests import PendingRequests
from tidelog_quorum.raft.snapshot_config import SnapshotConfig
from tidelog_quorum.raft.snapshots import remove_snapshot
from tidelog_quorum.raft.snapshotting import SnapshotSender, SnapshotTaker
from tidelog_quorum.raft.storage import Written, open_storage
from tidelog_quorum.raft.timer import DeadlineTimer
from tidelog_quorum.raft.writer import StorageWriter

__all__ = ["CommittedEntry", "LeaderAndEpoch", "RaftEngine", "RaftListener", "TidelogRaft"]

logger = logging.getLogger(__name__)
_RANDOM = random.SystemRandom()
_ANSWER_SLACK_S = 0.25
"""The core knows better why a request's time is over, so it is let say it first."""


class TidelogRaft:
    """One replica of the quorum: a :class:`RaftEngine` for the event loop on which it is started.

    ``voters`` are the first voters, this replica among them or not (then it follows without a vote); what the log says
    counts more. ``advertised`` is where the others reach this one; ``bootstrap`` are addresses of controllers to ask when the
    voters are not known. The service is added to ``server``, which stays the caller's to start and stop. When the disk
    fails or is full, or another voter or the listener breaks its contract, the engine falls silent for good: it
    acknowledges nothing any more, and the other voters elect a leader among themselves. :meth:`wait_failed` tells.
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        data_dir: Path | str,
        cluster_id: str,
        config: RaftConfig,
        server: grpc.aio.Server,
        *,
        advertised: tuple[str, int],
        bootstrap: Sequence[tuple[str, int]] = (),
        snapshots: SnapshotConfig | None = None,
        random_ms: RandomMs = _RANDOM.randrange,
        resolve: Resolve = resolve_address,
    ) -> None:
        self._node_id = node_id
        self._first_voters = voters
        self._directory = Path(data_dir)
        self._cluster_id = cluster_id
        self._config = config
        self._advertised = advertised
        self._bootstrap = bootstrap
        self._snapshots = snapshots or SnapshotConfig()
        self._random_ms = random_ms
        self._resolve = resolve
        self._leader = LeaderAndEpoch(None, 0, False)
        self._core: Raft | None = None
        self._events: deque[Event] = deque()
        self._stepping = False
        self._requests = PendingRequests()
        self._writer = StorageWriter(self._on_written, self._fail)
        self._written: asyncio.Event = asyncio.Event()
        self._sequence = self._compact_sequence = 0
        self._failure: TidelogError | None = None
        self._failed = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None
        self._receiver = RaftReceiver(self._on_message)
        add_RaftServiceServicer_to_server(self._receiver, server)
