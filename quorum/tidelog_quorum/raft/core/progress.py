"""What a leader knows of one other replica, and what it may send there now.

- A replica is *probed* with one append at a time until the place where the logs agree is known.
- Then appends are *pipelined*: the next goes out before the last is answered, up to a bound in appends and in bytes
  (thesis 10.2.1). A refusal leads back to probing. A heartbeat carries the place up to which everything was sent, so
  a lost append shows at once.
- A replica that needs what the log has no more is sent a *snapshot* (see ``outgoing_snapshot``), and no entries
  meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidelog_quorum.raft.core.outgoing_snapshot import OutgoingSnapshot


@dataclass(slots=True)
class Progress:
    """``match_index`` never falls: the replica's disk equals the leader's log up to there.

    ``contact_ms`` is when it was last heard from, or the start of the term until ``heard``. ``directory_id`` is
    that of the log which all this is about; empty while it is not known.
    """

    next_index: int
    contact_ms: int
    directory_id: bytes = b""
    heard: bool = False
    caught_up_ms: int | None = None
    match_index: int = 0
    probing: bool = True
    probe_sent: bool = False
    inflight: deque[tuple[int, int]] = field(default_factory=deque)
    inflight_bytes: int = 0
    snapshot: OutgoingSnapshot | None = None
    acknowledged_context: int = 0
    sent_context: int = 0
    sent_commit_index: int = 0
    end_at_contact: int = 0

    def appends_allowed(self, max_inflight: int) -> bool:
        """Return whether one more append with entries may go out now, if its bytes fit."""
        if self.snapshot is not None:
            return False
        return not self.probe_sent if self.probing else len(self.inflight) < max_inflight

    def entries_sent(self, last_index: int, size: int) -> None:
        """Note that entries from ``next_index`` to ``last_index`` with ``size`` bytes are under way."""
        if self.probing:
            self.probe_sent = True
        else:
            self.next_index = last_index + 1
            self.inflight.append((last_index, size))
            self.inflight_bytes += size

    def contacted(self, now_ms: int, leader_last_index: int) -> None:
        """Note that an answer of this term has come (when caught up: as Kafka's leader counts it for replicas)."""
        if self.match_index >= leader_last_index:
            self.caught_up_ms = now_ms
        elif self.heard and self.match_index >= self.end_at_contact:
            self.caught_up_ms = max(self.caught_up_ms or 0, self.contact_ms)
        self.end_at_contact = leader_last_index
        self.contact_ms = now_ms
        self.heard = True

    def acknowledged(self, match_index: int, log_first_index: int) -> None:
        """Note that the replica's disk has everything up to ``match_index``; repeated or late news is harmless."""
        self.match_index = max(self.match_index, match_index)
        self.next_index = max(self.next_index, self.match_index + 1)
        if self.snapshot is not None:
            if self.match_index < self.snapshot.snapshot.last_index and self.match_index + 1 < log_first_index:
                return
            self.snapshot = None
        if self.probing:
            self.probing = self.probe_sent = False
            self.next_index = self.match_index + 1
        while self.inflight and self.inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def refused(self, rejected_prev_index: int, hint_index: int) -> None:
        """Go back to where the logs may agree, unless the refusal is of an append that no longer matters."""
        if self.snapshot is not None or rejected_prev_index <= self.match_index:
            return
        if self.probing and rejected_prev_index != self.next_index - 1:
            return
        if rejected_prev_index >= self.next_index:
            return
        self.next_index = max(self.match_index, min(rejected_prev_index - 1, hint_index)) + 1
        self._probe()

    def begin_snapshot(self, snapshot: OutgoingSnapshot) -> None:
        """Send a snapshot from now on, and no entries."""
        self.snapshot = snapshot
        self._probe()

    def check_invariants(self, last_index: int, max_inflight: int, max_inflight_bytes: int) -> None:
        """Assert the order of the indexes and the bounds of the window."""
        assert 0 <= self.match_index < self.next_index <= last_index + 1, self
        assert len(self.inflight) <= max_inflight, self
        assert self.inflight_bytes == sum(size for _, size in self.inflight), self
        assert self.inflight_bytes <= max_inflight_bytes or len(self.inflight) == 1, self
        assert not (self.probing and self.inflight), self
        assert self.snapshot is None or self.probing, self
        assert list(self.inflight) == sorted(self.inflight), self

    def _probe(self) -> None:
        self.probing, self.probe_sent = True, False
        self.inflight.clear()
        self.inflight_bytes = 0
