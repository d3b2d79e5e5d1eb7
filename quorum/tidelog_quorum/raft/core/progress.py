"""A leader's view of one other replica, and the limits on sending to it.

- *Probing*: the leader sends one append at a time until it knows where the logs agree.
- *Replicating*: the next append leaves before the last is answered, up to a limit in appends and in bytes (thesis
  10.2.1). A refusal leads back to *Probing*. A heartbeat carries the index up to which everything was sent, so a lost
  append is detected at once.
- *SendingSnapshot*: a replica that needs entries before the log's start gets a snapshot, and no entries. *Replicating*
  follows once its log reaches the leader's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.messages import Snapshot, SnapshotResponse
from tidelog_quorum.raft.core.voters import Voter


@dataclass(slots=True)
class Probing:
    """The state while the place where the logs agree is unknown; ``is_sent``: an append with entries is under way."""

    is_sent: bool = False


@dataclass(slots=True)
class Replicating:
    """The state of a replica whose log agrees with the leader's up to ``match_index``.

    ``inflight`` has the last index and the size of each append under way, in ascending order and above ``match_index``.
    ``inflight_bytes`` is the sum of the sizes, within the limit unless there is only one.
    """

    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    inflight_bytes: int = 0


class SendingSnapshot:
    """One snapshot that the leader is sending (paper 7, figure 13); ``position`` is that of the chunk in flight.

    One chunk is in flight at a time; the answer names the next position. After the last one, the leader only sends an
    empty chunk now and then, which asks whether the snapshot is installed. A chunk without an answer is sent again
    after a heartbeat interval, then after twice that, and so on up to half an election timeout: the chunk, its answer
    or the file may be lost. A snapshot whose transfer made no progress for an election timeout gives way to a newer
    one, if there is one. Otherwise the transfer of the older one continues, because it would never end if each new
    snapshot restarted it.
    """

    __slots__ = ("_answered_ms", "_attempts", "_config", "_resend_ms", "position", "snapshot")

    def __init__(self, snapshot: Snapshot, config: RaftConfig, now_ms: int) -> None:
        self.snapshot = snapshot
        self.position = 0
        self._config = config
        self._attempts = 0
        self._answered_ms = now_ms
        self._resend_ms = now_ms

    def is_due(self, now_ms: int) -> bool:
        """Return whether to send the chunk at ``position``, for the first time or again."""
        return now_ms >= self._resend_ms

    def sent(self, now_ms: int) -> None:
        """Record that the chunk at ``position`` was sent."""
        wait_ms = self._config.heartbeat_interval_ms << min(self._attempts, 16)
        self._resend_ms = now_ms + min(wait_ms, self._config.election_timeout_ms // 2)
        self._attempts += 1

    def is_answered_by(self, response: SnapshotResponse) -> bool:
        """Return whether a response is about this snapshot and not an older one."""
        return (response.last_index, response.last_term) == (self.snapshot.last_index, self.snapshot.last_term)

    def on_position(self, position: int, now_ms: int) -> None:
        """Continue at ``position``; an answer that names the chunk in flight changes nothing."""
        self._answered_ms = now_ms
        if position != self.position and 0 <= position <= self.snapshot.size:
            self.position, self._attempts, self._resend_ms = position, 0, now_ms
            if position == self.snapshot.size:
                self._resend_ms += self._config.heartbeat_interval_ms

    def is_stalled(self, now_ms: int) -> bool:
        """Return whether no answer has come for an election timeout."""
        return now_ms - self._answered_ms >= self._config.election_timeout_ms


@dataclass(slots=True)
class Progress:
    """The progress of one replica, for one term of the leader."""

    next_index: int
    """The first index of the next append with entries: ``match_index < next_index <= last index + 1``.

    While *Replicating*, all entries below it are sent.
    """
    contact_ms: int
    """The time of the last answer in this term; the start of the term until ``has_answered``. It never decreases."""
    directory_id: bytes = b""
    """The id of the replica's log; empty until known, then constant."""
    has_answered: bool = False
    """True from the first answer in this term on."""
    caught_up_ms: int | None = None
    """The last time at which the replica had all of the leader's entries; None for never, at most ``contact_ms``."""
    match_index: int = 0
    """The replica's disk equals the leader's log up to here. It never decreases."""
    state: Probing | Replicating | SendingSnapshot = field(default_factory=Probing)
    acknowledged_context: int = 0
    """The highest read context that the replica has echoed. It never decreases, and is at most the leader's."""
    sent_context: int = 0
    """The read context of the latest append. It never decreases."""
    sent_commit_index: int = 0
    """The commit index of the latest append. It never decreases."""
    end_at_contact: int = 0
    """The leader's last index at ``contact_ms``; 0 until ``has_answered``. It never decreases."""

    def appends_allowed(self, max_inflight: int) -> bool:
        """Return whether one more append with entries may be sent now, if its bytes fit."""
        match self.state:
            case Probing(is_sent):
                return not is_sent
            case Replicating(inflight):
                return len(inflight) < max_inflight
            case _:
                return False

    def entries_sent(self, last_index: int, size: int) -> None:
        """Record that entries from ``next_index`` to ``last_index`` with ``size`` bytes are under way."""
        if isinstance(self.state, Probing):
            self.state.is_sent = True
        elif isinstance(self.state, Replicating):
            self.next_index = last_index + 1
            self.state.inflight.append((last_index, size))
            self.state.inflight_bytes += size

    def contacted(self, now_ms: int, leader_last_index: int) -> None:
        """Record an answer of this term (and the last catch-up, as Kafka's leader counts it for replicas)."""
        if self.match_index >= leader_last_index:
            self.caught_up_ms = now_ms
        elif self.has_answered and self.match_index >= self.end_at_contact:
            self.caught_up_ms = max(self.caught_up_ms or 0, self.contact_ms)
        self.end_at_contact = leader_last_index
        self.contact_ms = now_ms
        self.has_answered = True

    def acknowledged(self, match_index: int, log_first_index: int) -> None:
        """Record that the replica's disk has everything up to ``match_index``; repeated or late calls are harmless."""
        self.match_index = max(self.match_index, match_index)
        self.next_index = max(self.next_index, self.match_index + 1)
        if not isinstance(self.state, Replicating):
            if isinstance(self.state, SendingSnapshot) and self._needs(self.state.snapshot, log_first_index):
                return
            self.state = Replicating()
            self.next_index = self.match_index + 1
        while self.state.inflight and self.state.inflight[0][0] <= self.match_index:
            self.state.inflight_bytes -= self.state.inflight.popleft()[1]

    def refused(self, rejected_prev_index: int, hint_index: int) -> None:
        """Go back to where the logs may agree, unless the refused append no longer matters."""
        if isinstance(self.state, SendingSnapshot) or rejected_prev_index <= self.match_index:
            return
        if isinstance(self.state, Probing) and rejected_prev_index != self.next_index - 1:
            return
        if rejected_prev_index >= self.next_index:
            return
        self.next_index = max(self.match_index, min(rejected_prev_index - 1, hint_index)) + 1
        self.state = Probing()

    def check_invariants(self, last_index: int, max_inflight: int, max_inflight_bytes: int) -> None:
        """Assert the order of the indexes and the bounds of the window."""
        assert 0 <= self.match_index < self.next_index <= last_index + 1, self
        assert self.caught_up_ms is None or self.caught_up_ms <= self.contact_ms, self
        assert self.has_answered or (self.caught_up_ms, self.end_at_contact) == (None, 0), self
        if isinstance(self.state, Replicating):
            inflight, inflight_bytes = self.state.inflight, self.state.inflight_bytes
            assert len(inflight) <= max_inflight, self
            assert inflight_bytes == sum(size for _, size in inflight), self
            assert inflight_bytes <= max_inflight_bytes or len(inflight) == 1, self
            assert list(inflight) == sorted(inflight), self
            assert all(self.match_index < index < self.next_index for index, _ in inflight), self

    def _needs(self, snapshot: Snapshot, log_first_index: int) -> bool:
        """Return whether the replica's log still ends before the snapshot's end and before the leader's log."""
        return self.match_index < snapshot.last_index and self.match_index + 1 < log_first_index


@dataclass(slots=True)
class VoterCatchUp:
    """A replica that is to become a voter as soon as it has caught up (thesis 4.2.1), at an operator's request.

    It catches up in *rounds*: in each it must receive everything up to ``target_index``, which the leader had when the
    round began. Once a round takes no longer than an election timeout, little is missing, and the new vote does not
    reduce availability.
    """

    request_id: int
    voter: Voter
    deadline_ms: int
    target_index: int
    round_began_ms: int

    def is_caught_up(self, match_index: int, leader_last_index: int, now_ms: int, election_timeout_ms: int) -> bool:
        """Return whether the last round was quick; otherwise begin the next one."""
        if match_index < self.target_index:
            return False
        if now_ms - self.round_began_ms <= election_timeout_ms:
            return True
        self.target_index, self.round_began_ms = leader_last_index, now_ms
        return False
