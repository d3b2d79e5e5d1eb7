"""One replica of a Raft cluster as a state machine without I/O: events in, commands out.

This module passes the events to the rules and orders the commands. The rules are in the modules beside it, each with
its sources (the paper: Ongaro and Ousterhout, extended version; the thesis: Ongaro): ``election``, ``follower``,
``leadership`` (also for reads), ``membership``, ``reception``, ``snapshots`` and ``transfer``. It guarantees itself:

- Committed entries are applied in order, once they are on this replica's disk (figure 2, all servers).
- A promise is on disk before the message that makes it leaves (see ``durability``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.quorum import DescribeQuorumResponse
from tidelog_quorum.raft.core import commands, election, events, membership, reception, snapshots, transfer
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.messages import EntryKind, HardState
from tidelog_quorum.raft.core.replica import Candidate, Replica


class Raft(Replica):
    """One replica, from the start of its process to its end. Its state is for reading; only :meth:`step` changes it.

    ``voters`` is the configured first set; a later one in the log or a snapshot replaces it. A replica that is not in
    the set follows without a vote. ``endpoints`` are the replica's current addresses, and ``listener`` names the one by
    which it calls others. ``hard_state``, ``snapshot`` and ``entries`` are the content of the disk, and ``log_start``
    is the index and term of the entry before the first one: with a snapshot the entries reach at least up to its end,
    or there are none. ``random`` spreads the election timeouts. All calls come from one thread; ``now_ms`` never
    decreases (an earlier time counts as the latest one seen).
    """

    @property
    def next_deadline_ms(self) -> int | None:
        """The latest time for the next :class:`Tick`; None while no timer runs."""
        if self.log.has_unwritten:
            return self.now_ms
        deadline_ms = self.role.next_deadline_ms if isinstance(self.role, Leadership) else self.election_deadline_ms
        if self.transfer is None:
            return deadline_ms
        return self.transfer.deadline_ms if deadline_ms is None else min(deadline_ms, self.transfer.deadline_ms)

    def step(self, event: events.Event, now_ms: int) -> list[commands.Command]:
        """Process one event and return the commands to execute, in order.

        A proposal is only added to the log: the commands that replicate it come with the next other event, so that
        concurrent proposals share a write and an append; ``next_deadline_ms`` requests that event at once.

        Raises:
            TidelogError: another voter violated the protocol (two leaders in one term, a committed entry contradicted).
                This replica must stop; the state on its disk is correct.
        """
        self.now_ms = max(self.now_ms, now_ms)
        match event:
            case events.Proposed():
                return [self._on_proposed(event)]
            case events.Tick():
                self._on_tick()
            case events.MessageReceived(message, directory_id, endpoints):
                reception.on_message(self, message, directory_id, endpoints)
            case events.Persisted(sequence):
                self._on_persisted(sequence)
            case events.ReadRequested(request_id):
                self._on_read_requested(request_id)
            case events.SnapshotTaken(snapshot):
                snapshots.on_snapshot_taken(self, snapshot)
            case events.SnapshotDamaged():
                snapshots.on_snapshot_damaged(self, event)
            case _:
                self._on_operator_request(event)
        if self.transfer is not None:
            transfer.advance(self, self.transfer)
        if isinstance(self.role, Leadership):
            membership.advance(self, self.role)
        return self._take_commands()

    def describe(self, now_ms: int, endpoints_of: Callable[[int], Endpoints]) -> DescribeQuorumResponse:
        """Describe the quorum as its leader."""
        assert isinstance(self.role, Leadership), self.role
        voters, observers = self.role.replicas(self.durability.last_index, now_ms, endpoints_of)
        return DescribeQuorumResponse(
            leader_id=self.node_id,
            leader_epoch=self.term,
            high_watermark=self.commit_index,
            voters=voters,
            observers=observers,
            snapshot_offset=-1 if self.snapshot is None else self.snapshot.last_index,
            log_start_offset=self.log.first_index,
        )

    def check_invariants(self) -> None:
        """Assert the invariants that hold between any two steps; reads the whole log."""
        log = self.log
        assert log.start_index <= self.applied_index <= self.commit_index <= log.last_index
        assert self.applied_index <= self.durability.last_index
        assert not self.replies
        assert not self.outbox
        assert self.compaction is None
        log.check_invariants()
        self.durability.check_invariants(log.last_index)
        self.voters.check_invariants(log.last_index)
        _check_voters(self)
        _check_snapshots(self)
        if isinstance(self.role, Leadership):
            _check_leadership(self, self.role)

    def _on_proposed(self, event: events.Proposed) -> commands.Command:
        if not isinstance(self.role, Leadership) or event.epoch != self.term or self.transfer is not None:
            return commands.ProposalRejected(self.leader_id, self.term)
        return commands.ProposalAccepted(self.append(EntryKind.DATA, event.payload), self.term)

    def _on_tick(self) -> None:
        if isinstance(self.role, Leadership):
            deadline_ms = self.role.quorum_deadline_ms
            if deadline_ms is not None and self.now_ms >= deadline_ms:
                self.follow(None)
        elif self.now_ms >= self.election_deadline_ms:
            election.on_election_timeout(self)

    def _on_persisted(self, sequence: int) -> None:
        self.durability.complete(sequence)
        snapshots.on_persisted(self, sequence)
        if isinstance(self.role, Candidate):
            election.on_vote_durable(self, self.role)
        elif isinstance(self.role, Leadership):
            self.advance_commit(self.role)

    def _on_read_requested(self, request_id: int) -> None:
        if not isinstance(self.role, Leadership):
            self.outbox.append(commands.ReadFailed(request_id))
        elif self.commit_index < self.role.start_index:
            self.role.reads.add_early(request_id)
        else:
            self.role.reads.add(request_id, self.commit_index)

    def _on_operator_request(
        self,
        event: events.AddVoterRequested
        | events.RemoveVoterRequested
        | events.UpdateVoterRequested
        | events.TransferRequested,
    ) -> None:
        if not isinstance(self.role, Leadership):
            self.refuse(event.request_id, ErrorCode.NOT_CONTROLLER, "it does not lead the quorum")
            return
        match event:
            case events.AddVoterRequested():
                refusal = membership.on_add_requested(self, self.role, event)
            case events.RemoveVoterRequested():
                refusal = membership.on_remove_requested(self, self.role, event)
            case events.UpdateVoterRequested():
                refusal = membership.on_update_requested(self, self.role, event)
            case events.TransferRequested():
                refusal = transfer.on_transfer_requested(self, self.role, event)
            case _:
                assert_never(event)
        if refusal is not None:
            self.refuse(event.request_id, *refusal)

    def _take_commands(self) -> list[commands.Command]:
        role = self.role
        taken = self._take_reports()
        if isinstance(role, Leadership):
            taken += role.appends(self.commit_index, self.snapshot, self.now_ms)
            taken += role.heartbeats(self.commit_index, self.now_ms)
        self._add_writes(taken)
        for send, acknowledges_log in self.replies:
            self.durability.defer(send, acknowledges_log=acknowledges_log)
        self.replies.clear()
        taken += self.durability.release(self.term)
        self._add_commit(taken)
        if isinstance(role, Leadership):
            taken += (
                commands.ReadReady(*read)
                for read in role.reads.take_ready(role.confirmed_context(), self.applied_index)
            )
        return taken

    def _take_reports(self) -> list[commands.Command]:
        taken: list[commands.Command] = []
        if self.to_restore is not None:
            taken.append(commands.RestoreSnapshot(self.to_restore))
            self.to_restore = None
        reported, voters = self.reported_voters, self.voters
        if reported is None or reported.voters is not voters.current or reported.index != voters.index:
            self.reported_voters = commands.VotersChanged(voters.current, voters.index)
            taken.append(self.reported_voters)
        if (self.reported_leader.leader_id, self.reported_leader.term) != (self.leader_id, self.term):
            self.reported_leader = commands.LeaderChanged(self.leader_id, self.term)
            taken.append(self.reported_leader)
        taken += self.outbox
        self.outbox.clear()
        return taken

    def _add_writes(self, taken: list[commands.Command]) -> None:
        changed = self.hard_state != self.durability.newest_hard_state
        if changed or self.log.has_unwritten:
            truncate_from, entries = self.log.take_unwritten()
            sequence = self._issue_write()
            taken.append(commands.Persist(sequence, self.hard_state if changed else None, truncate_from, entries))
        if self.compaction is not None:
            taken.append(commands.CompactLog(self._issue_write(), *self.compaction))
            self.compaction = None
        if self.incoming is not None and self.incoming.is_whole and self.incoming.sequence is None:
            self.incoming.sequence = self._issue_write()
            taken.append(commands.InstallSnapshot(self.incoming.sequence, self.incoming.snapshot))

    def _issue_write(self) -> int:
        return self.durability.issue(self.hard_state, self.log.last_index)

    def _add_commit(self, taken: list[commands.Command]) -> None:
        start, end = self.applied_index + 1, min(self.commit_index, self.durability.last_index) + 1
        if start < end:
            self.applied_index = end - 1
            taken.append(commands.Commit(self.log.slice(start, end)))


def _check_voters(replica: Replica) -> None:
    """Assert that the latest set in the log is in force, else the snapshot's."""
    log, snapshot, voters = replica.log, replica.snapshot, replica.voters
    first = log.first_index if snapshot is None else snapshot.last_index + 1
    entries = [e for e in log.slice(first, log.last_index + 1) if e.voters is not None]
    if entries:
        assert (voters.index, voters.current) == (entries[-1].index, entries[-1].voters)
    elif snapshot is not None:
        assert voters.index <= snapshot.last_index
        assert voters.current == snapshot.voters


def _check_snapshots(replica: Replica) -> None:
    log, snapshot, incoming = replica.log, replica.snapshot, replica.incoming
    if snapshot is None:
        assert log.start_index == 0
    else:
        assert log.start_index <= snapshot.last_index <= replica.applied_index
        assert log.matches(snapshot.last_index, snapshot.last_term)
    if incoming is not None:
        assert incoming.snapshot.last_index > replica.commit_index
        assert incoming.position <= incoming.snapshot.size
        assert incoming.is_whole == (incoming.sequence is not None)


def _check_leadership(replica: Replica, leader: Leadership) -> None:
    assert replica.durability.hard_state == HardState(replica.term, replica.node_id)
    assert replica.log.last_term == replica.term
    assert not replica.is_installing
    leader.check_invariants()
