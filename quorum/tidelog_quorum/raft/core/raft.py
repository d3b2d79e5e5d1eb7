"""One replica of a Raft cluster as a state machine without I/O: events in, commands out.

This module passes the events to the rules and orders the commands. The rules are in the modules beside it, each with
its sources (the paper: Ongaro and Ousterhout, extended version; the thesis: Ongaro): ``election``, ``follower``,
``leadership``, ``membership``, ``reads``, ``reception``, ``snapshots`` and ``transfer``. It guarantees itself:

- Committed entries are applied in order, once they are on this replica's disk (figure 2, all servers).
- A promise is on disk before the message that makes it leaves (see ``durability``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tidelog_quorum.raft.core import election, membership, reception, snapshots, transfer
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
    RestoreSnapshot,
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
from tidelog_quorum.raft.core.invariants import check_invariants
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.messages import (
    Entry,
    EntryKind,
    HardState,
    Snapshot,
)
from tidelog_quorum.raft.core.replica import Candidate, Follower, RandomMs, Replica
from tidelog_quorum.raft.core.replica_state import ReplicaState
from tidelog_quorum.raft.core.voters import VoterSet


class Raft:
    """One replica, from the start of its process to its end.

    ``voters`` is the configured first set; a later one in the log or a snapshot replaces it. A replica that is not in
    the set follows without a vote. ``address`` is the replica's current address. ``hard_state``, ``snapshot`` and
    ``entries`` are the content of the disk, and ``log_start`` is the index and term of the entry before the first one:
    with a snapshot the entries reach at least up to its end, or there are none. ``random_ms`` spreads the election
    timeouts. All calls come from one thread; ``now_ms`` never decreases (an earlier time counts as the latest one
    seen).
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        config: RaftConfig,
        random_ms: RandomMs,
        *,
        directory_id: bytes = b"",
        address: tuple[str, int] | None = None,
        hard_state: HardState | None = None,
        snapshot: Snapshot | None = None,
        entries: Sequence[Entry] = (),
        log_start: tuple[int, int] = (0, 0),
        now_ms: int = 0,
    ) -> None:
        if snapshot is not None and not entries:
            log_start = (snapshot.last_index, snapshot.last_term)
        log = RaftLog(entries, log_start)
        assert log.matches(*((0, 0) if snapshot is None else (snapshot.last_index, snapshot.last_term))), (
            snapshot,
            log_start,
        )
        self._replica = Replica(
            node_id, directory_id, config, random_ms, hard_state or HardState(), snapshot, log, voters, now_ms, address
        )
        self._replica.begin_election_timer()
        self._restore = snapshot
        self._announced_leader = LeaderChanged(None, self.term)
        self._announced_voters: tuple[VoterSet, int] | None = None

    @property
    def node_id(self) -> int:
        """The id of this replica."""
        return self._replica.node_id

    @property
    def directory_id(self) -> bytes:
        """The id that distinguishes this log from another one with the same replica id."""
        return self._replica.directory_id

    @property
    def log(self) -> RaftLog:
        """The log, read-only."""
        return self._replica.log

    @property
    def hard_state(self) -> HardState:
        """The latest term and the vote in it."""
        return self._replica.hard_state

    @property
    def role(self) -> Follower | Candidate | Leadership:
        """The role of this replica in its term, read-only."""
        return self._replica.role

    @property
    def term(self) -> int:
        """The latest term this replica has seen."""
        return self._replica.term

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term, as far as this replica knows."""
        return self._replica.leader_id

    @property
    def commit_index(self) -> int:
        """The last index that is known to be committed."""
        return self._replica.commit_index

    @property
    def applied_index(self) -> int:
        """The last index delivered in a Commit or a RestoreSnapshot."""
        return self._replica.applied_index

    @property
    def durable_index(self) -> int:
        """The last index of the log that would survive a crash."""
        return self._replica.durability.last_index

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest snapshot of this replica."""
        return self._replica.snapshot

    @property
    def voters(self) -> VoterSet:
        """The voters in force: the latest in the log, committed or not."""
        return self._replica.voters.current

    @property
    def voters_index(self) -> int:
        """The index of the entry, or the end of the snapshot, with the voters in force; 0 for the configuration."""
        return self._replica.voters.index

    def voters_at(self, index: int) -> VoterSet:
        """Return the voters in force at ``index``, from the snapshot's end to the log's, for a snapshot there."""
        return self._replica.voters.at(index)

    def replicas(self, now_ms: int) -> list[ReplicaState]:
        """Return the leader's view of all voters and observers, with itself; empty if this replica does not lead."""
        role = self._replica.role
        return role.replicas(self.durable_index, now_ms) if isinstance(role, Leadership) else []

    @property
    def next_deadline_ms(self) -> int | None:
        """The latest time for the next :class:`Tick`; None while no timer runs."""
        replica = self._replica
        if replica.log.has_unwritten:
            return replica.now_ms
        role = replica.role
        deadline_ms = role.next_deadline_ms if isinstance(role, Leadership) else replica.election_deadline_ms
        if replica.transfer is None:
            return deadline_ms
        transfer_ms = replica.transfer.deadline_ms
        return transfer_ms if deadline_ms is None else min(deadline_ms, transfer_ms)

    def step(self, event: Event, now_ms: int) -> list[Command]:
        """Process one event and return the commands to execute, in order.

        A proposal is only added to the log: the commands that replicate it come with the next other event, so that
        concurrent proposals share a write and an append; ``next_deadline_ms`` requests that event at once.

        Raises:
            TidelogError: another voter violated the protocol (two leaders in one term, a committed entry contradicted).
                This replica must stop; the state on its disk is correct.
        """
        replica = self._replica
        replica.now_ms = max(replica.now_ms, now_ms)
        match event:
            case Proposed():
                return [self._on_proposed(event)]
            case Tick():
                self._on_tick()
            case MessageReceived(message, directory_id, address):
                reception.on_message(replica, message, directory_id, address)
            case Persisted(sequence):
                self._on_persisted(sequence)
            case ReadRequested(request_id):
                self._on_read_requested(request_id)
            case SnapshotTaken(snapshot):
                snapshots.on_snapshot_taken(replica, snapshot)
            case SnapshotDamaged():
                snapshots.on_snapshot_damaged(replica, event)
            case AddVoterRequested():
                membership.on_add_requested(replica, event)
            case RemoveVoterRequested():
                membership.on_remove_requested(replica, event)
            case UpdateVoterRequested():
                membership.on_update_requested(replica, event)
            case TransferRequested():
                transfer.on_transfer_requested(replica, event)
            case _:
                assert_never(event)
        if replica.transfer is not None:
            transfer.advance(replica, replica.transfer)
        if isinstance(replica.role, Leadership):
            membership.advance(replica, replica.role)
        return self._take_commands()

    def check_invariants(self) -> None:
        """Assert the invariants that hold between any two steps."""
        check_invariants(self._replica)

    def _on_proposed(self, event: Proposed) -> Command:
        replica = self._replica
        if not isinstance(replica.role, Leadership) or event.epoch != self.term or replica.transfer is not None:
            return ProposalRejected(self.leader_id, self.term)
        return ProposalAccepted(replica.append(EntryKind.DATA, event.payload), self.term)

    def _on_tick(self) -> None:
        replica = self._replica
        if isinstance(replica.role, Leadership):
            deadline_ms = replica.role.quorum_deadline_ms
            if deadline_ms is not None and replica.now_ms >= deadline_ms:
                replica.follow(None)
        elif replica.now_ms >= replica.election_deadline_ms:
            election.on_election_timeout(replica)

    def _on_persisted(self, sequence: int) -> None:
        replica = self._replica
        replica.durability.complete(sequence)
        snapshots.on_persisted(replica, sequence)
        match replica.role:
            case Candidate():
                election.on_vote_durable(replica, replica.role)
            case Leadership():
                replica.advance_commit(replica.role)
            case _:
                pass

    def _on_read_requested(self, request_id: int) -> None:
        role = self._replica.role
        if not isinstance(role, Leadership):
            self._replica.outbox.append(ReadFailed(request_id))
        elif self.commit_index < role.start_index:
            role.reads.add_early(request_id)
        else:
            role.reads.add(request_id, self.commit_index)

    def _take_commands(self) -> list[Command]:
        replica, role = self._replica, self._replica.role
        commands = self._take_news()
        if isinstance(role, Leadership):
            commands += role.appends(self.commit_index, self.snapshot, replica.now_ms)
            commands += role.heartbeats(self.commit_index, replica.now_ms)
        self._add_writes(commands)
        for send, acknowledges_log in replica.replies:
            replica.durability.hold(send, acknowledges_log=acknowledges_log)
        replica.replies.clear()
        commands += replica.durability.release(self.term)
        self._add_commit(commands)
        if isinstance(role, Leadership):
            ready = role.reads.take_ready(role.confirmed_context(), self.applied_index)
            commands += [ReadReady(*read) for read in ready]
        return commands

    def _take_news(self) -> list[Command]:
        replica = self._replica
        commands: list[Command] = []
        if self._restore is not None:
            commands.append(RestoreSnapshot(self._restore))
            self._restore = None
        announced, voters = self._announced_voters, replica.voters.current
        if announced is None or announced[0] is not voters or announced[1] != replica.voters.index:
            self._announced_voters = voters, replica.voters.index
            commands.append(VotersChanged(voters, replica.voters.index))
        leader = self._announced_leader
        if leader.term != self.term or leader.leader_id != self.leader_id:
            self._announced_leader = LeaderChanged(self.leader_id, self.term)
            commands.append(self._announced_leader)
        commands += replica.outbox
        replica.outbox.clear()
        return commands

    def _add_writes(self, commands: list[Command]) -> None:
        replica, durability = self._replica, self._replica.durability
        changed = replica.hard_state != durability.newest_hard_state
        if changed or replica.log.has_unwritten:
            truncate_from, entries = replica.log.take_unwritten()
            sequence = durability.issue(replica.hard_state, replica.log.last_index)
            commands.append(Persist(sequence, replica.hard_state if changed else None, truncate_from, entries))
        if replica.compaction is not None:
            sequence = durability.issue(replica.hard_state, replica.log.last_index)
            commands.append(CompactLog(sequence, *replica.compaction))
            replica.compaction = None
        if replica.incoming is not None and replica.incoming.is_whole and replica.incoming.sequence is None:
            replica.incoming.sequence = sequence = durability.issue(replica.hard_state, replica.log.last_index)
            commands.append(InstallSnapshot(sequence, replica.incoming.snapshot))

    def _add_commit(self, commands: list[Command]) -> None:
        replica = self._replica
        start, end = replica.applied_index + 1, min(replica.commit_index, self.durable_index) + 1
        if start < end:
            replica.applied_index = end - 1
            commands.append(Commit(replica.log.slice(start, end)))
