"""The state that all rules of one replica share, and the transitions that more than one of them makes.

The rules are in the modules beside this one: ``election``, ``follower``, ``leadership``, ``membership``, ``snapshots``
and ``transfer``. Only :meth:`tidelog_quorum.raft.core.raft.Raft.step` calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core.commands import Command, LeaderChanged, ReadFailed, RequestRefused, Send, VotersChanged
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.durability import Durability
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.leadership import Leadership
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.messages import Entry, EntryKind, HardState, Message, Snapshot, SnapshotRequest
from tidelog_quorum.raft.core.voters import VoterHistory, VoterSet

Refusal = tuple[ErrorCode, str]
"""The error of a refused request, and the reason: the predicate of a sentence about this controller, or a sentence."""


class RandomSource(Protocol):
    """A source of random numbers that can be copied with its state, such as :class:`random.Random`."""

    def randrange(self, start: int, stop: int, /) -> int:
        """Return a number from ``start`` up to but excluding ``stop``."""


@dataclass(slots=True)
class Follower:
    """Follows ``leader_id``, or no known leader."""

    leader_id: int | None = None


@dataclass(slots=True)
class Candidate:
    """Collects votes: with ``pre_vote`` for permission to raise the term, otherwise to lead in the current one."""

    pre_vote: bool
    granted: set[int]


@dataclass(slots=True)
class Transfer:
    """A leader of ``term`` hands over to ``target``; ``asked_ms`` is the time of the last request to campaign."""

    request_id: int
    target: int
    term: int
    deadline_ms: int
    asked_ms: int | None = None


@dataclass(slots=True)
class IncomingSnapshot:
    """A snapshot that a leader is sending to this replica; ``position`` is that of the next chunk.

    Chunks are accepted in order of position only. The next leader can continue a transfer that another one began,
    because equal snapshots have equal bytes. Within a term a leader's snapshots only become newer, so a chunk of an
    older one is late and ignored; a new leader may have an older snapshot than its predecessor. A complete snapshot
    replaces the log by the write with the ``sequence``; no chunk is accepted meanwhile.
    """

    snapshot: Snapshot
    term: int
    position: int = 0
    is_whole: bool = False
    sequence: int | None = None

    def is_superseded_by(self, request: SnapshotRequest) -> bool:
        """Return whether the leader is now sending another snapshot."""
        if request.snapshot == self.snapshot:
            return False
        return request.term > self.term or request.snapshot.last_index > self.snapshot.last_index

    def accepts(self, request: SnapshotRequest) -> bool:
        """Return whether a request's chunk is the next one and valid."""
        end = request.position + len(request.chunk)
        is_last = end == self.snapshot.size
        return request.position == self.position and end <= self.snapshot.size and (bool(request.chunk) or is_last)


class Replica:
    """The state of one replica between two events: plain data, which can be copied, pickled and compared.

    - ``commit_index`` is the last index that is known to be committed, ``applied_index`` the last one delivered in a
      ``Commit`` or a ``RestoreSnapshot``.
    - ``incoming`` is a snapshot that is being received, ``transfer`` a hand-over that began here.
    - ``outbox`` has the commands of the current step that wait for nothing; ``replies`` has messages that wait for the
      disk, with whether they acknowledge entries. Both are empty between two events.
    - ``compaction`` is the next snapshot to record on disk, with the log's new first index.
    - ``to_restore`` is the snapshot found on disk until the first step reports it; ``reported_leader`` and
      ``reported_voters`` are the latest reports of each kind.
    """

    def __init__(
        self,
        node_id: int,
        voters: VoterSet,
        config: RaftConfig,
        random: RandomSource,
        *,
        directory_id: bytes = b"",
        endpoints: Endpoints | None = None,
        listener: str = ANY_LISTENER,
        hard_state: HardState | None = None,
        snapshot: Snapshot | None = None,
        entries: Sequence[Entry] = (),
        log_start: tuple[int, int] = (0, 0),
        now_ms: int = 0,
    ) -> None:
        """Start from the configuration and the content of the disk; see :class:`tidelog_quorum.raft.core.raft.Raft`."""
        end = (0, 0) if snapshot is None else (snapshot.last_index, snapshot.last_term)
        log = RaftLog(entries, log_start if entries or snapshot is None else end)
        assert log.matches(*end), (snapshot, log_start)
        self.node_id = node_id
        self.directory_id = directory_id
        self.endpoints = endpoints
        self.listener = listener
        self.config = config
        self.hard_state = hard_state or HardState()
        self.snapshot = snapshot
        self.log = log
        self.voters = _voters_of(voters, snapshot, log)
        self.role: Follower | Candidate | Leadership = Follower()
        self.commit_index = self.applied_index = end[0]
        self.durability = Durability(self.hard_state, log.last_index)
        self.incoming: IncomingSnapshot | None = None
        self.transfer: Transfer | None = None
        self.compaction: tuple[Snapshot, int] | None = None
        self.outbox: list[Command] = []
        self.replies: list[tuple[Send, bool]] = []
        self.now_ms = now_ms
        self.leader_contact_ms = now_ms
        self.election_deadline_ms = now_ms
        self.to_restore = snapshot
        self.reported_leader = LeaderChanged(None, self.term)
        self.reported_voters: VotersChanged | None = None
        self._random = random
        self._timeout_ms = config.election_timeout_ms
        self._begin_election_timer()

    @property
    def term(self) -> int:
        """The latest term this replica has seen."""
        return self.hard_state.term

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term, as far as this replica knows."""
        match self.role:
            case Leadership():
                return self.node_id
            case Follower(leader_id):
                return leader_id
            case _:
                return None

    @property
    def has_vote(self) -> bool:
        """True if this replica is one of the voters in force, by its id and its directory id."""
        return self.voters.current.is_voter(self.node_id, self.directory_id)

    @property
    def peers(self) -> tuple[int, ...]:
        """The other voters in force."""
        return tuple(voter for voter in self.voters.current.ids if voter != self.node_id)

    @property
    def is_installing(self) -> bool:
        """True while a complete snapshot is replacing the log."""
        return self.incoming is not None and self.incoming.is_whole

    @property
    def voters_are_settled(self) -> bool:
        """True if the entry with the voters in force is committed, so that they may change (thesis 4.1)."""
        return self.voters.index <= self.commit_index

    def adopt_term(self, term: int) -> None:
        """Adopt a higher term, without a vote in it."""
        self.hard_state = HardState(term)
        self.follow(None)

    def follow(self, leader_id: int | None) -> None:
        """Follow a leader, or none; a leader resigns."""
        if isinstance(self.role, Follower) and self.role.leader_id == leader_id:
            return
        resigned, self.role = self.role, Follower(leader_id)
        self.draw_timeout()
        if isinstance(resigned, Leadership):
            self.outbox += [ReadFailed(request_id) for request_id in resigned.reads.take_all()]
            if resigned.catch_up is not None:
                self.refuse(resigned.catch_up.request_id, ErrorCode.NOT_CONTROLLER, "it no longer leads the quorum")
            self.restart_election_timer()

    def append(self, kind: EntryKind, payload: bytes = b"", voters: VoterSet | None = None) -> int:
        """Add an entry of the current term to the leader's log; return its index."""
        self.log.append(Entry(self.log.last_index + 1, self.term, kind, payload, voters))
        return self.log.last_index

    def append_voters(self, leader: Leadership, voters: VoterSet) -> int:
        """Add a set of voters to the leader's log, in force at once, and return its index."""
        index = self.append(EntryKind.VOTERS, voters=voters)
        self.voters.add(index, voters)
        leader.on_voters_changed(self.now_ms)
        return index

    def advance_commit(self, leader: Leadership) -> None:
        """Commit the entries that a majority has on disk, if the last of them is of the current term (paper 5.4.2)."""
        index = leader.majority_index(self.durability.last_index)
        if index > self.commit_index and self.log.term_at(index) == self.term:
            self.commit_index = index
            leader.reads.start_early(index)

    def reply(self, to: int, message: Message, *, acknowledges_log: bool = False) -> None:
        """Send a message once the term and the vote, and with ``acknowledges_log`` also the entries, are on disk."""
        self.replies.append((Send(to, message), acknowledges_log))

    def refuse(self, request_id: int, code: ErrorCode, reason: str) -> None:
        """Refuse an operator's request; ``reason`` is the predicate of a sentence about this replica."""
        self.outbox.append(RequestRefused(request_id, code, f"controller {self.node_id}: {reason} (term {self.term})"))

    def draw_timeout(self) -> None:
        """Draw a new random election timeout."""
        timeout_ms = self.config.election_timeout_ms
        self._timeout_ms = self._random.randrange(timeout_ms, timeout_ms + timeout_ms // 2)

    def restart_election_timer(self) -> None:
        """Restart the election timer with a full timeout."""
        self.election_deadline_ms = self.now_ms + self._timeout_ms

    def retry_election_later(self) -> None:
        """Wait long enough for two rounds and two disk writes; less than a full timeout, because nobody leads."""
        timeout_ms = self.config.election_timeout_ms
        self.election_deadline_ms = self.now_ms + self._random.randrange(timeout_ms // 5, timeout_ms // 2)

    def _begin_election_timer(self) -> None:
        """Wait only briefly: a new process knows no leader yet, and a pre-vote does not disturb a live one."""
        timeout_ms = self.config.election_timeout_ms
        alone = self.has_vote and not self.peers
        self.election_deadline_ms = self.now_ms + (
            0 if alone else self._random.randrange(timeout_ms // 10, timeout_ms // 2)
        )


def protocol_violation(text: str) -> TidelogError:
    """Return the error for an action that violates Raft's rules."""
    return error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"a voter violated the Raft protocol, so this one stops: {text}")


def _voters_of(configured: VoterSet, snapshot: Snapshot | None, log: RaftLog) -> VoterHistory:
    history = VoterHistory(0, configured) if snapshot is None else VoterHistory(snapshot.last_index, snapshot.voters)
    for entry in log.slice(max(history.index + 1, log.first_index), log.last_index + 1):
        if entry.voters is not None:
            history.add(entry.index, entry.voters)
    return history
