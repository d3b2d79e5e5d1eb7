"""A leader's view of one other replica, and the limits on sending to it.

- The leader *probes* a replica with one append at a time until it knows where the logs agree.
- Then it *pipelines* appends: the next one leaves before the last is answered, up to a limit in appends and in bytes
  (thesis 10.2.1). A refusal leads back to probing. A heartbeat carries the index up to which everything was sent, so a
  lost append is detected at once.
- A replica that needs entries before the log's start gets a *snapshot* (see ``outgoing_snapshot``), and no entries
  meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidelog_quorum.raft.core.outgoing_snapshot import OutgoingSnapshot


@dataclass(slots=True)
class Progress:
    """The progress of one replica.

    ``match_index`` never decreases: up to there the replica's disk equals the leader's log. ``contact_ms`` is the time
    of the last message from the replica, or the start of the term until ``heard``. ``directory_id`` identifies the
    replica's log; empty if unknown.
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
        """Return whether one more append with entries may leave now, if its bytes fit."""
        if self.snapshot is not None:
            return False
        return not self.probe_sent if self.probing else len(self.inflight) < max_inflight

    def entries_sent(self, last_index: int, size: int) -> None:
        """Record that entries from ``next_index`` to ``last_index``, of ``size`` bytes, are in flight."""
        if self.probing:
            self.probe_sent = True
        else:
            self.next_index = last_index + 1
            self.inflight.append((last_index, size))
            self.inflight_bytes += size

    def contacted(self, now_ms: int, leader_last_index: int) -> None:
        """Record an answer of this term (and the last catch-up, as Kafka's leader counts it for replicas)."""
        if self.match_index >= leader_last_index:
            self.caught_up_ms = now_ms
        elif self.heard and self.match_index >= self.end_at_contact:
            self.caught_up_ms = max(self.caught_up_ms or 0, self.contact_ms)
        self.end_at_contact = leader_last_index
        self.contact_ms = now_ms
        self.heard = True

    def acknowledged(self, match_index: int, log_first_index: int) -> None:
        """Record that the replica's disk has everything up to ``match_index``; repeated or late calls are harmless."""
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
        """Go back to where the logs may agree, unless the refused append no longer matters."""
        if self.snapshot is not None or rejected_prev_index <= self.match_index:
            return
        if self.probing and rejected_prev_index != self.next_index - 1:
            return
        if rejected_prev_index >= self.next_index:
            return
        self.next_index = max(self.match_index, min(rejected_prev_index - 1, hint_index)) + 1
        self._probe()

    def begin_snapshot(self, snapshot: OutgoingSnapshot) -> None:
        """Send a snapshot, and no entries, from now on."""
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
