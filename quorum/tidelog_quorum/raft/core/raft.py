"""One voter of a Raft cluster as a state machine without I/O: events in, commands out.

The rules it upholds, with their sources (the paper: Ongaro and Ousterhout, extended version; the thesis: Ongaro):

- At most one leader per term: a vote is on disk before its reply leaves (figure 2).
- A follower acknowledges only what is on its disk, drops only entries that conflict, and never a committed one (5.3).
- A leader commits by counting disks, its own included, and counts only entries of its own term (5.4.2, figure 8).
- Answers of an older term than the receiver's are dropped: every message carries its sender's term (5.1).
- A voter asks whether it would win before it raises its term (pre-vote, thesis 9.6), and gives nobody a vote
  while it hears from a leader (thesis 4.2.3), so that a voter cut off for a while disturbs nobody when it returns.
- A leader that has not heard from a majority within an election timeout resigns (thesis 6.2).
- A read is answered after a majority has confirmed the leader (thesis 6.4).

The voter set is fixed. There are no snapshots, so the log is whole and in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from tidelog.errors import ErrorCode, TidelogError, error_for
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
from tidelog_quorum.raft.core.durability import Durability
from tidelog_quorum.raft.core.events import Event, MessageReceived, Persisted, Proposed, ReadRequested, Tick
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Message,
    Snapshot,
    VoteRequest,
    VoteResponse,
)
from tidelog_quorum.raft.core.voters import VoterSet

RandomMs = Callable[[int, int], int]
"""Returns a number from the first argument up to and without the second."""


@dataclass(slots=True)
class Follower:
    """Follows ``leader_id``, or nobody that it knows of."""

    leader_id: int | None = None


@dataclass(slots=True)
class Candidate:
    """Gathers votes: with ``pre_vote`` for leave to raise the term, else for leading in the current one."""

    pre_vote: bool
    granted: set[int]


class Raft:
    """One voter, from a start of its process to the end.

    ``hard_state`` and ``entries`` are what its disk holds. ``random_ms`` spreads the election timeouts. All
    calls come from one thread; ``now_ms`` never falls (an earlier time counts as the latest one seen).
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        config: RaftConfig,
        random_ms: RandomMs,
        *,
        directory_id: bytes = b"",
        hard_state: HardState | None = None,
        snapshot: Snapshot | None = None,
        entries: Sequence[Entry] = (),
        log_start: tuple[int, int] = (0, 0),
        now_ms: int = 0,
    ) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.voters = voters
        self.snapshot = snapshot
        self.log = RaftLog(entries, log_start)
        self.hard_state = hard_state or HardState()
        self.role: Follower | Candidate | Leadership = Follower()
        self.commit_index = 0
        self.applied_index = 0
        self._config = config
        self._random_ms = random_ms
        self._peers = tuple(voter for voter in self.voters.ids if voter != node_id)
        self._durability = Durability(self.hard_state, self.log.last_index)
        self._now_ms = now_ms
        self._leader_contact_ms = now_ms
        self._timeout_ms = config.election_timeout_ms
        self._election_deadline_ms = now_ms + self._first_timeout_ms()
        self._replies: list[Send] = []
        self._failed_reads: list[int] = []
        self._announced = LeaderChanged(None, self.term)

    @property
    def term(self) -> int:
        """The latest term this voter has seen."""
        return self.hard_state.term

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term, as far as this voter knows."""
        match self.role:
            case Leadership():
                return self.node_id
            case Follower(leader_id):
                return leader_id
            case _:
                return None

    @property
    def durable_index(self) -> int:
        """The last index of the log that would survive a crash."""
        return self._durability.last_index

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next :class:`Tick` is due at the latest; None while nothing waits for time to pass."""
        if self.log.has_unwritten:
            return self._now_ms
        if isinstance(self.role, Leadership):
            quorum_ms = self.role.quorum_deadline_ms
            return None if quorum_ms is None else min(quorum_ms, self.role.next_heartbeat_ms)
        return self._election_deadline_ms

    def step(self, event: Event, now_ms: int) -> list[Command]:
        """Take one event and return what is to be done, in order.

        A proposal is only put in its place: what it takes to replicate it comes with the next other event, so that
        proposals of one moment share a write and an append; ``next_deadline_ms`` asks for that event at once.

        Raises:
            TidelogError: another voter broke a promise of the protocol (two leaders in one term, a committed entry
                contradicted). This voter must stop: its disk is right as it is.
        """
        self._now_ms = max(self._now_ms, now_ms)
        match event:
            case Proposed():
                return [self._on_proposed(event)]
            case Tick():
                self._on_tick()
            case MessageReceived(message):
                self._on_message(message)
            case Persisted(sequence):
                self._on_persisted(sequence)
            case ReadRequested(request_id):
                self._on_read_requested(request_id)
            case _:
                assert_never(event)
        return self._take_commands()

    def check_invariants(self) -> None:
        """Assert what must hold between any two steps."""
        assert self.applied_index <= self.commit_index <= self.log.last_index
        assert self.applied_index <= self.durable_index
        assert not self._replies
        assert not self._failed_reads
        self.log.check_invariants()
        self._durability.check_invariants(self.log.last_index)
        if isinstance(self.role, Leadership):
            assert self._durability.hard_state == HardState(self.term, self.node_id)
            assert self.log.last_term == self.term
            self.role.check_invariants()

    def _on_proposed(self, event: Proposed) -> Command:
        if not isinstance(self.role, Leadership) or event.epoch != self.term:
            return ProposalRejected(self.leader_id, self.term)
        return ProposalAccepted(self._append_entry(EntryKind.DATA, event.payload), self.term)

    def _on_tick(self) -> None:
        if isinstance(self.role, Leadership):
            deadline_ms = self.role.quorum_deadline_ms
            if deadline_ms is not None and self._now_ms >= deadline_ms:
                self._follow(None)
        elif self._now_ms >= self._election_deadline_ms:
            self._campaign(pre_vote=True)

    def _on_message(self, message: Message) -> None:
        if message.sender_id not in self._peers:
            return
        if isinstance(message, VoteRequest) and self._leader_is_alive():
            return
        if message.term > self.term:
            self.hard_state = HardState(message.term)
            self._follow(None)
        match message:
            case VoteRequest():
                self._on_vote_request(message)
            case VoteResponse():
                self._on_vote_response(message)
            case AppendRequest():
                self._on_append_request(message)
            case AppendResponse():
                self._on_append_response(message)
            case _:
                assert_never(message)

    def _on_persisted(self, sequence: int) -> None:
        self._durability.complete(sequence)
        match self.role:
            case Candidate(pre_vote=False) if self._durability.hard_state == self.hard_state:
                self._count_vote(self.role, self.node_id)
            case Leadership():
                self._advance_commit(self.role)
            case _:
                pass

    def _on_read_requested(self, request_id: int) -> None:
        if not isinstance(self.role, Leadership):
            self._failed_reads.append(request_id)
        elif self.commit_index < self.role.start_index:
            self.role.reads.add_early(request_id)
        else:
            self.role.reads.add(request_id, self.commit_index)

    def _on_vote_request(self, request: VoteRequest) -> None:
        granted = request.term == self.term and self.log.is_covered_by(request.last_term, request.last_index)
        if granted and not request.pre_vote:
            granted = self.leader_id is None and self.hard_state.voted_for in (None, request.sender_id)
        if granted and not request.pre_vote:
            self.hard_state = HardState(self.term, request.sender_id)
            self._follow(None)
            self._restart_election_timer()
        self._replies.append(
            Send(request.sender_id, VoteResponse(self.node_id, self.term, request.pre_vote, granted)),
        )

    def _on_vote_response(self, response: VoteResponse) -> None:
        if response.term < self.term or not response.granted:
            return
        if isinstance(self.role, Candidate) and self.role.pre_vote == response.pre_vote:
            self._count_vote(self.role, response.sender_id)

    def _on_append_request(self, request: AppendRequest) -> None:
        if request.term < self.term:
            self._reply_to_append(request, success=False, index=0)
            return
        if self.leader_id not in (None, request.sender_id):
            raise _broken_promise(f"term {self.term} has two leaders, {self.leader_id} and {request.sender_id}")
        self._follow(request.sender_id)
        self._leader_contact_ms = self._now_ms
        self._restart_election_timer()
        if not self.log.matches(request.prev_index, request.prev_term):
            hint = self.log.latest_not_after(request.prev_index, request.prev_term)
            self._reply_to_append(request, success=False, index=hint)
            return
        self._take_entries(request.entries)
        last_index = request.prev_index + len(request.entries)
        self.commit_index = max(self.commit_index, min(request.commit_index, last_index))
        self._reply_to_append(request, success=True, index=last_index)

    def _on_append_response(self, response: AppendResponse) -> None:
        if response.term < self.term or not isinstance(self.role, Leadership):
            return
        self.role.on_response(response, self._now_ms)
        self._advance_commit(self.role)

    def _take_entries(self, entries: tuple[Entry, ...]) -> None:
        first = self.log.first_difference(entries)
        if first is None:
            return
        if first <= self.commit_index:
            raise _broken_promise(
                f"the entry at index {first} is committed with term {self.log.term_at(first)}, "
                f"but the leader of term {self.term} has another there"
            )
        if first <= self.log.last_index:
            self.log.truncate_from(first)
            self._durability.forget_from(first)
        for entry in entries[first - entries[0].index :]:
            self.log.append(entry)

    def _reply_to_append(self, request: AppendRequest, *, success: bool, index: int) -> None:
        response = AppendResponse(
            self.node_id,
            self.term,
            success,
            index,
            0 if success else self.log.term_at(index),
            0 if success else request.prev_index,
            request.read_context,
        )
        self._replies.append(Send(request.sender_id, response))

    def _leader_is_alive(self) -> bool:
        if isinstance(self.role, Leadership):
            return True
        heard_ms = self._now_ms - self._leader_contact_ms
        return self.leader_id is not None and heard_ms < self._config.election_timeout_ms

    def _follow(self, leader_id: int | None) -> None:
        if isinstance(self.role, Follower) and self.role.leader_id == leader_id:
            return
        resigned, self.role = self.role, Follower(leader_id)
        self._timeout_ms = self._full_timeout_ms()
        if isinstance(resigned, Leadership):
            self._failed_reads += resigned.reads.take_all()
            self._restart_election_timer()

    def _campaign(self, *, pre_vote: bool) -> None:
        if not pre_vote:
            self.hard_state = HardState(self.term + 1, self.node_id)
        self._election_deadline_ms = self._now_ms + self._retry_timeout_ms()
        self.role = Candidate(pre_vote, set())
        for peer in self._peers:
            request = VoteRequest(self.node_id, self.term, pre_vote, self.log.last_index, self.log.last_term)
            self._replies.append(Send(peer, request))
        if pre_vote:
            self._count_vote(self.role, self.node_id)

    def _count_vote(self, candidate: Candidate, voter: int) -> None:
        candidate.granted.add(voter)
        if len(candidate.granted) <= len(self.voters) // 2:
            return
        if candidate.pre_vote:
            self._campaign(pre_vote=False)
        else:
            self._lead()

    def _lead(self) -> None:
        self.role = Leadership(self.node_id, self._peers, self.term, self.log, self._config, self._now_ms)
        self._append_entry(EntryKind.NO_OP, b"")

    def _append_entry(self, kind: EntryKind, payload: bytes) -> int:
        index = self.log.last_index + 1
        self.log.append(Entry(index, self.term, kind, payload))
        return index

    def _advance_commit(self, leader: Leadership) -> None:
        index = leader.majority_index(self.durable_index)
        if index > self.commit_index and self.log.term_at(index) == self.term:
            self.commit_index = index
            leader.reads.start_early(index)

    def _take_commands(self) -> list[Command]:
        commands: list[Command] = []
        announcement = LeaderChanged(self.leader_id, self.term)
        if announcement != self._announced:
            self._announced = announcement
            commands.append(announcement)
        commands += [ReadFailed(request_id) for request_id in self._failed_reads]
        self._failed_reads.clear()
        if isinstance(self.role, Leadership):
            commands += self.role.appends(self.commit_index)
            commands += self.role.heartbeats(self.commit_index, self._now_ms)
        commands += self._take_write()
        for reply in self._replies:
            self._durability.hold(reply)
        self._replies.clear()
        commands += self._durability.release(self.term)
        commands += self._take_commit()
        if isinstance(self.role, Leadership):
            confirmed = self.role.confirmed_context()
            commands += [ReadReady(*read) for read in self.role.reads.take_ready(confirmed, self.applied_index)]
        return commands

    def _take_write(self) -> list[Command]:
        changed = self.hard_state != self._durability.newest_hard_state
        if not changed and not self.log.has_unwritten:
            return []
        truncate_from, entries = self.log.take_unwritten()
        sequence = self._durability.issue(self.hard_state, self.log.last_index)
        return [Persist(sequence, self.hard_state if changed else None, truncate_from, entries)]

    def _take_commit(self) -> list[Command]:
        start, end = self.applied_index + 1, min(self.commit_index, self.durable_index) + 1
        if start >= end:
            return []
        self.applied_index = end - 1
        return [Commit(self.log.slice(start, end))]

    def _restart_election_timer(self) -> None:
        self._election_deadline_ms = self._now_ms + self._timeout_ms

    def _full_timeout_ms(self) -> int:
        timeout_ms = self._config.election_timeout_ms
        return self._random_ms(timeout_ms, timeout_ms + timeout_ms // 2)

    def _first_timeout_ms(self) -> int:
        """A fresh process knows no leader to be patient with, and a pre-vote disturbs none that lives."""
        if not self._peers:
            return 0
        return self._random_ms(self._config.election_timeout_ms // 10, self._config.election_timeout_ms // 2)

    def _retry_timeout_ms(self) -> int:
        """Long enough for two rounds and two disk writes; shorter than a full one, since nobody leads anyway."""
        return self._random_ms(self._config.election_timeout_ms // 5, self._config.election_timeout_ms // 2)


def _broken_promise(text: str) -> TidelogError:
    return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"a voter broke Raft's rules, so this one stops: {text}")
