"""The state and actions of a leader: the progress of the other replicas, the messages to send, the commit index.

- Appends may leave before the leader's own disk has the entries. The leader counts itself only up to the entry that its
  disk has acknowledged (thesis 10.2.1), and not at all once it is no voter any more (thesis 4.2.2).
- Only voters count: for commits, for reads and for staying in office (check quorum, thesis 6.2). The leader also sends
  the log to *observers*, replicas without a vote, up to a limit and as long as they answer.
- A replica whose next entry is before the log's start gets the latest snapshot, and then the log from there on.
  Compaction keeps the entries after a snapshot while its transfer makes progress; otherwise a slow replica would never
  catch up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.quorum import QuorumReplica
from tidelog_quorum.raft.core import messages
from tidelog_quorum.raft.core.commands import Send, SendSnapshot
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import ANY_LISTENER, Endpoints
from tidelog_quorum.raft.core.log import RaftLog
from tidelog_quorum.raft.core.progress import Progress, Replicating, SendingSnapshot, VoterCatchUp
from tidelog_quorum.raft.core.voters import VoterHistory

OBSERVER_FORGOTTEN_AFTER = 10
"""Election timeouts without contact."""


class Leadership:
    """One term of office, from the election to the resignation.

    ``start_index`` is the index of the term's no-op: once it is committed, the leader knows the commit index.
    ``progress`` has all other voters, and the observers. ``catch_up`` is the replica that is to become a voter.
    ``moved`` has the new addresses of voters whose addresses in the set in force are outdated. ``lacks_directories`` is
    True if the set in force lacks the directory id of a voter. ``_announced`` has the addresses that voters in force
    have announced in this term. ``_listener`` names the listener at which this leader calls others.
    """

    def __init__(
        self,
        node_id: int,
        directory_id: bytes,
        term: int,
        log: RaftLog,
        voters: VoterHistory,
        config: RaftConfig,
        now_ms: int,
        endpoints: Endpoints | None = None,
        listener: str = ANY_LISTENER,
    ) -> None:
        self.start_index = log.last_index + 1
        self.reads = ReadQueue()
        self.next_heartbeat_ms = now_ms + config.heartbeat_interval_ms
        self.progress: dict[int, Progress] = {}
        self.catch_up: VoterCatchUp | None = None
        self.moved: dict[int, Endpoints] = {}
        self._announced: dict[int, Endpoints] = {}
        self._node_id = node_id
        self._directory_id = directory_id
        self._endpoints = endpoints
        self._listener = listener
        self._term = term
        self._log = log
        self._voters = voters
        self._config = config
        self._voting: list[Progress] = []
        self._has_vote = False
        self.lacks_directories = False
        self.on_voters_changed(now_ms)

    @property
    def quorum_deadline_ms(self) -> int | None:
        """The time to resign unless more voters answer (check quorum, thesis 6.2); None for an only voter."""
        needed = (len(self._voting) + self._has_vote) // 2 + 1 - self._has_vote
        if needed <= 0:
            return None
        contacts = sorted((p.contact_ms for p in self._voting), reverse=True)
        return contacts[needed - 1] + self._config.election_timeout_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """The next time at which the leader must act; None without other replicas."""
        if not self.progress:
            return None
        deadline_ms = self.next_heartbeat_ms
        if self.quorum_deadline_ms is not None:
            deadline_ms = min(deadline_ms, self.quorum_deadline_ms)
        return deadline_ms if self.catch_up is None else min(deadline_ms, self.catch_up.deadline_ms)

    def on_voters_changed(self, now_ms: int) -> None:
        """Apply the voters now in force; a replica that lost its vote stays as an observer."""
        voters = self._voters.current
        self._has_vote = voters.is_voter(self._node_id, self._directory_id)
        for voter in voters:
            if voter.voter_id != self._node_id and voter.voter_id not in self.progress:
                self.progress[voter.voter_id] = Progress(self._log.last_index + 1, now_ms, voter.directory_id)
        self._voting = [progress for peer, progress in self.progress.items() if peer in voters]
        self.lacks_directories = any(not voter.directory_id for voter in voters)
        current = {voter.voter_id: voter.endpoints for voter in voters}
        self.moved = {i: endpoints for i, endpoints in self.moved.items() if current.get(i) not in (None, endpoints)}
        self._announced = {i: endpoints for i, endpoints in self._announced.items() if i in voters}
        self.note_endpoints(self._node_id, self._directory_id, self._endpoints)

    def note_endpoints(self, sender_id: int, directory_id: bytes, endpoints: Endpoints | None) -> None:
        """Record a voter's addresses. Only the voter's own log counts, which its directory id identifies.

        Ignore them if the leader could not call the voter any more (Kafka's UpdateVoterHandler, step 5).
        """
        voter = self._voters.current.get(sender_id)
        if voter is None or endpoints is None or not directory_id or voter.directory_id != directory_id:
            return
        if voter.endpoints == endpoints:
            self._announced[sender_id] = endpoints
            self.moved.pop(sender_id, None)
        elif self.reaches(endpoints):
            self._announced[sender_id] = endpoints
            self.moved[sender_id] = endpoints

    def reaches(self, endpoints: Endpoints) -> bool:
        """Return whether the endpoints have an address of the listener at which this leader calls others."""
        return endpoints.address(self._listener) is not None

    def announced_endpoints(self, voter_id: int, now_ms: int) -> Endpoints | None:
        """Return the addresses that a voter announces; None if it has announced none or was not heard from lately."""
        progress = self.progress.get(voter_id)
        if progress is not None and now_ms - progress.contact_ms >= self._config.election_timeout_ms:
            return None
        return self._announced.get(voter_id)

    def directory_of(self, voter_id: int) -> bytes:
        """Return the directory id that a voter has announced in this term; empty if none."""
        return self._directory_id if voter_id == self._node_id else self.progress[voter_id].directory_id

    def majority_index(self, durable_index: int) -> int:
        """Return the last index that a majority has on disk; ``durable_index`` is the leader's own."""
        return self._majority([p.match_index for p in self._voting], durable_index)

    def confirmed_context(self) -> int:
        """Return the last read context that a majority has echoed."""
        return self._majority([p.acknowledged_context for p in self._voting], self.reads.context)

    def admit(self, sender_id: int, directory_id: bytes, now_ms: int) -> Progress | None:
        """Return the progress of the log that sent a message; None if the leader does not follow it.

        The first message with a directory id identifies the log. A voter's log is always the one that has the vote; of
        another replica, the leader follows its current log.
        """
        progress = self.progress.get(sender_id)
        if progress is None:
            return None
        if progress.directory_id and directory_id and progress.directory_id != directory_id:
            if sender_id not in self._voters.current:
                self.progress[sender_id] = self._new_observer(self._log.last_index, directory_id, now_ms)
            return None
        progress.directory_id = progress.directory_id or directory_id
        return progress

    def on_append_response(self, progress: Progress, response: messages.AppendResponse, now_ms: int) -> None:
        """Process an answer of this term. Ignore one to a message that was never sent: its sender is broken."""
        if response.match_index > self._log.last_index or response.read_context > self.reads.context:
            return
        progress.acknowledged_context = max(progress.acknowledged_context, response.read_context)
        if response.success:
            progress.acknowledged(response.match_index, self._log.first_index)
        else:
            hint = self._log.latest_not_after(response.match_index, response.conflict_term)
            progress.refused(response.rejected_prev_index, hint)
        progress.contacted(now_ms, self._log.last_index)

    def on_snapshot_response(self, progress: Progress, response: messages.SnapshotResponse, now_ms: int) -> None:
        """Continue with the requested chunk, or with the log; ignore an answer about an older snapshot."""
        sending = progress.state
        if isinstance(sending, SendingSnapshot) and sending.is_answered_by(response):
            if response.done:
                progress.acknowledged(response.last_index, self._log.first_index)
            else:
                sending.on_position(response.position, now_ms)
        progress.contacted(now_ms, self._log.last_index)

    def on_follow_request(self, request: messages.FollowRequest, directory_id: bytes, now_ms: int) -> None:
        """Accept a replica without a vote as an observer, or record that it is still there.

        A voter is followed anyway. Its request does not prove that it hears this leader, so it does not count as
        contact.
        """
        if request.sender_id in self._voters.current:
            return
        if request.sender_id in self.progress:
            progress = self.admit(request.sender_id, directory_id, now_ms)
            if progress is not None:
                progress.contacted(now_ms, self._log.last_index)
        elif len(self.progress) - len(self._voting) < self._config.max_observers:
            self.progress[request.sender_id] = self._new_observer(request.last_index, directory_id, now_ms)

    def retained_from(self, now_ms: int) -> int:
        """Return the first index that compaction should keep: the entries after snapshots that are being sent."""
        sending = [p.state for p in self.progress.values() if isinstance(p.state, SendingSnapshot)]
        ends = [s.snapshot.last_index + 1 for s in sending if not s.is_stalled(now_ms)]
        return min(ends, default=self._log.last_index + 1)

    def best_successor(self, now_ms: int) -> int | None:
        """Return the most up-to-date other voter, preferring those that were heard from lately."""

        def rank(peer: int) -> tuple[bool, int]:
            progress = self.progress[peer]
            return now_ms - progress.contact_ms < self._config.election_timeout_ms, progress.match_index

        others = [voter for voter in self._voters.current.ids if voter != self._node_id]
        return max(others, key=rank, default=None)

    def heartbeats(self, commit_index: int, now_ms: int) -> Iterator[Send]:
        """Yield a message to every other replica when heartbeats are due, and remove observers that are gone."""
        if now_ms < self.next_heartbeat_ms:
            return
        self.next_heartbeat_ms = now_ms + self._config.heartbeat_interval_ms
        self._forget_silent_observers(now_ms)
        for peer, progress in self.progress.items():
            yield self._append(peer, progress, (), commit_index)

    def appends(
        self, commit_index: int, snapshot: messages.Snapshot | None, now_ms: int
    ) -> Iterator[Send | SendSnapshot]:
        """Yield the entries that others lack, within their windows, then unsent commit indexes and read contexts."""
        for peer, progress in self.progress.items():
            if progress.next_index <= self._log.start_index or isinstance(progress.state, SendingSnapshot):
                yield from self._snapshot_chunk(peer, progress, snapshot, now_ms)
            else:
                yield from self._entries(peer, progress, commit_index)
            commits = isinstance(progress.state, Replicating) and progress.sent_commit_index < commit_index
            if commits or (progress.sent_context < self.reads.context and peer in self._voters.current):
                yield self._append(peer, progress, (), commit_index)

    def replicas(
        self, durable_index: int, now_ms: int, endpoints_of: Callable[[int], Endpoints]
    ) -> tuple[tuple[QuorumReplica, ...], tuple[QuorumReplica, ...]]:
        """Return the state of the voters and of the observers, each with this replica if it is one, ordered by id."""
        me = self._node_id
        endpoints = {i: endpoints_of(i) for i in (me, *self.progress)}
        states = {
            me: QuorumReplica(
                me, durable_index, self._endpoint(endpoints[me]), self._directory_id, 0, 0, tuple(endpoints[me])
            )
        }
        for peer, progress in self.progress.items():
            states[peer] = QuorumReplica(
                replica_id=peer,
                log_end_offset=progress.match_index,
                endpoint=self._endpoint(endpoints[peer]),
                directory_id=progress.directory_id,
                last_fetch_age_ms=_age_ms(progress.contact_ms if progress.has_answered else None, now_ms),
                last_caught_up_age_ms=_age_ms(progress.caught_up_ms, now_ms),
                endpoints=tuple(endpoints[peer]),
                silent_ms=_age_ms(progress.contact_ms, now_ms),
            )
        voters: list[QuorumReplica] = []
        observers: list[QuorumReplica] = []
        for replica_id in sorted(states):
            has_vote = self._has_vote if replica_id == me else replica_id in self._voters.current
            (voters if has_vote else observers).append(states[replica_id])
        return tuple(voters), tuple(observers)

    def _endpoint(self, endpoints: Endpoints) -> Endpoint:
        return Endpoint(*endpoints.address(self._listener) or ("", 0))

    def check_invariants(self) -> None:
        """Assert the invariants of every replica's progress, and that exactly the voters count."""
        voters = self._voters.current
        for progress in self.progress.values():
            progress.check_invariants(
                self._log.last_index, self._config.max_inflight_appends, self._config.max_inflight_bytes
            )
        assert self._node_id not in self.progress
        assert {peer for peer in self.progress if peer in voters} == {v for v in voters.ids if v != self._node_id}
        assert [id(p) for p in self._voting] == [id(p) for peer, p in self.progress.items() if peer in voters]
        assert self._has_vote == voters.is_voter(self._node_id, self._directory_id)

    def _majority(self, others: list[int], own: int) -> int:
        if self._has_vote:
            others.append(own)
        others.sort(reverse=True)
        return others[len(others) // 2]

    def _new_observer(self, last_index: int, directory_id: bytes, now_ms: int) -> Progress:
        """Return the progress of a log that ends at ``last_index``, with something to send at once if possible."""
        log = self._log
        next_index = last_index + 1 if last_index < log.last_index else max(log.last_index, log.first_index)
        return Progress(next_index, now_ms, directory_id)

    def _forget_silent_observers(self, now_ms: int) -> None:
        silent_ms = OBSERVER_FORGOTTEN_AFTER * self._config.election_timeout_ms
        for peer in [p for p in self.progress if p not in self._voters.current]:
            if now_ms - self.progress[peer].contact_ms >= silent_ms:
                del self.progress[peer]

    def _snapshot_chunk(
        self, peer: int, progress: Progress, latest: messages.Snapshot | None, now_ms: int
    ) -> Iterator[SendSnapshot]:
        assert latest is not None, "a log without a start at 0 has a snapshot"
        sending = progress.state
        if not isinstance(sending, SendingSnapshot) or (
            latest.last_index > sending.snapshot.last_index and sending.is_stalled(now_ms)
        ):
            sending = progress.state = SendingSnapshot(latest, self._config, now_ms)
        if sending.is_due(now_ms):
            sending.sent(now_ms)
            yield SendSnapshot(peer, self._term, sending.snapshot, sending.position)

    def _entries(self, peer: int, progress: Progress, commit_index: int) -> Iterator[Send]:
        config = self._config
        while progress.next_index <= self._log.last_index and progress.appends_allowed(config.max_inflight_appends):
            sent = progress.state if isinstance(progress.state, Replicating) else Replicating()
            room = config.max_inflight_bytes - sent.inflight_bytes
            entries, size = self._log.batch(progress.next_index, min(config.max_append_bytes, room))
            if size > room and sent.inflight:
                return
            yield self._append(peer, progress, entries, commit_index)
            progress.entries_sent(entries[-1].index, size)

    def _append(self, peer: int, progress: Progress, entries: tuple[messages.Entry, ...], commit_index: int) -> Send:
        progress.sent_context = self.reads.context
        progress.sent_commit_index = commit_index
        if isinstance(progress.state, SendingSnapshot):
            # A replica with the snapshot's end needs no more chunks; this append asks it, in case its last answer was
            # lost.
            snapshot = progress.state.snapshot
            prev_index, prev_term = snapshot.last_index, snapshot.last_term
        else:
            prev_index = progress.next_index - 1
            prev_term = self._log.term_at(prev_index)
        message = messages.AppendRequest(
            self._node_id, self._term, prev_index, prev_term, commit_index, entries, self.reads.context
        )
        return Send(peer, message)


@dataclass(frozen=True, slots=True)
class _Read:
    request_id: int
    context: int
    index: int


class ReadQueue:
    """Reads that wait until a majority has confirmed that this leader still leads (paper 8, thesis 6.4), in order.

    A read records the commit index and a number that increases with each read, the ``context``. The leader's messages
    carry the number, and the answers echo it; once a majority has echoed it, no later leader existed at the time of the
    request.
    """

    def __init__(self) -> None:
        self.context = 0
        self._early: list[int] = []
        self._reads: deque[_Read] = deque()

    def add_early(self, request_id: int) -> None:
        """Keep a read until the leader has committed an entry of its own term and so knows the commit index."""
        self._early.append(request_id)

    def add(self, request_id: int, commit_index: int) -> None:
        """Keep a read until a majority echoes the new ``context``."""
        self.context += 1
        self._reads.append(_Read(request_id, self.context, commit_index))

    def start_early(self, commit_index: int) -> None:
        """Start the reads that waited for the first commit of the leader's term."""
        for request_id in self._early:
            self.add(request_id, commit_index)
        self._early.clear()

    def take_ready(self, confirmed_context: int, applied_index: int) -> list[tuple[int, int]]:
        """Return (request id, index) of the confirmed reads whose index was delivered in a Commit."""
        ready = []
        while self._reads and self._reads[0].context <= confirmed_context and self._reads[0].index <= applied_index:
            read = self._reads.popleft()
            ready.append((read.request_id, read.index))
        return ready

    def take_all(self) -> list[int]:
        """Return the ids of all waiting reads, because the leader resigns."""
        ids = [read.request_id for read in self._reads] + self._early
        self._reads.clear()
        self._early.clear()
        return ids


def _age_ms(time_ms: int | None, now_ms: int) -> int:
    return -1 if time_ms is None else max(0, now_ms - time_ms)
