"""A leader's view of one other replica, and the limits on sending to it.

- *Probe*: the leader sends one append at a time until it knows where the logs agree.
- *Replicate*: the next append leaves before the last is answered, up to a limit in appends and in bytes (thesis
  10.2.1). A refusal leads back to *Probe*. A heartbeat carries the index up to which everything was sent, so a lost
  append is detected at once.
- *Snapshot*: a replica that needs entries before the log's start gets a snapshot (see ``outgoing_snapshot``), and no
  entries. *Replicate* follows once its log reaches the leader's.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from tidelog_quorum.raft.core.outgoing_snapshot import OutgoingSnapshot


class Mode(enum.Enum):
    """The state of a replica's progress."""

    PROBE = enum.auto()
    REPLICATE = enum.auto()
    SNAPSHOT = enum.auto()


@dataclass(slots=True)
class Progress:
    """The progress of one replica, for one term of the leader.

    - ``match_index`` never decreases: up to there the replica's disk equals the leader's log.
    - ``next_index`` is above ``match_index`` and at most one above the leader's last index. In *Replicate*, all entries
      below it are sent.
    - ``contact_ms`` is the time of the last message from the replica, or the start of the term until ``heard``;
      ``end_at_contact`` was the leader's last index then. ``caught_up_ms`` is None until the replica had all of that.
    - ``directory_id`` identifies the replica's log; empty if unknown.
    - ``probe_sent``: an append is under way; never in *Replicate*.
    - ``inflight`` holds the last index and the bytes of each append under way, ascending; empty but in *Replicate*.
      ``inflight_bytes`` is their sum, within the bound unless a single append exceeds it.
    - ``snapshot`` is what is sent; None but in *Snapshot*.
    - ``sent_context`` is the read context of the latest append; ``acknowledged_context`` never falls.
    - ``sent_commit_index`` is the latest commit index that was sent.
    """

    next_index: int
    contact_ms: int
    directory_id: bytes = b""
    heard: bool = False
    caught_up_ms: int | None = None
    match_index: int = 0
    mode: Mode = Mode.PROBE
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
        match self.mode:
            case Mode.PROBE:
                return not self.probe_sent
            case Mode.REPLICATE:
                return len(self.inflight) < max_inflight
            case Mode.SNAPSHOT:
                return False

    def entries_sent(self, last_index: int, size: int) -> None:
        """Note that entries from ``next_index`` to ``last_index`` with ``size`` bytes are under way."""
        if self.mode is Mode.PROBE:
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
        if self.mode is not Mode.REPLICATE:
            self.mode, self.probe_sent = Mode.REPLICATE, False
            self.next_index = self.match_index + 1
        while self.inflight and self.inflight[0][0] <= self.match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]

    def refused(self, rejected_prev_index: int, hint_index: int) -> None:
        """Go back to where the logs may agree, unless the refused append no longer matters."""
        if self.snapshot is not None or rejected_prev_index <= self.match_index:
            return
        if self.mode is Mode.PROBE and rejected_prev_index != self.next_index - 1:
            return
        if rejected_prev_index >= self.next_index:
            return
        self.next_index = max(self.match_index, min(rejected_prev_index - 1, hint_index)) + 1
        self._stop_replicating(Mode.PROBE)

    def begin_snapshot(self, snapshot: OutgoingSnapshot) -> None:
        """Send a snapshot, and no entries, from now on."""
        self.snapshot = snapshot
        self._stop_replicating(Mode.SNAPSHOT)

    def check_invariants(self, last_index: int, max_inflight: int, max_inflight_bytes: int) -> None:
        """Assert the order of the indexes and the bounds of the window."""
        assert 0 <= self.match_index < self.next_index <= last_index + 1, self
        assert len(self.inflight) <= max_inflight, self
        assert self.inflight_bytes == sum(size for _, size in self.inflight), self
        assert self.inflight_bytes <= max_inflight_bytes or len(self.inflight) == 1, self
        assert self.mode is Mode.REPLICATE or not self.inflight, self
        assert (self.snapshot is not None) == (self.mode is Mode.SNAPSHOT), self
        assert not (self.mode is Mode.REPLICATE and self.probe_sent), self
        assert list(self.inflight) == sorted(self.inflight), self

    def _stop_replicating(self, mode: Mode) -> None:
        self.mode, self.probe_sent = mode, False
        self.inflight.clear()
        self.inflight_bytes = 0
