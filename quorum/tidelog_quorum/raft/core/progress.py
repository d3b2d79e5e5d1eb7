"""What a leader knows of one follower, and what it may send there now.

A follower is *probed* with one append at a time until the place where the logs agree is known; then appends
are *pipelined*: the next goes out before the last is answered, up to a bound (thesis 10.2.1). A refusal leads
back to probing. A heartbeat carries the place up to which everything was sent, so a lost append shows at once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """``match_index`` never falls: the follower's disk equals the leader's log up to there."""

    next_index: int
    contact_ms: int
    match_index: int = 0
    probing: bool = True
    probe_sent: bool = False
    inflight: deque[int] = field(default_factory=deque)
    acknowledged_context: int = 0
    sent_context: int = 0
    sent_commit_index: int = 0

    def may_send_entries(self, last_index: int, max_inflight: int) -> bool:
        """Return whether entries up to ``last_index`` are missing and may go out now."""
        if self.next_index > last_index:
            return False
        return not self.probe_sent if self.probing else len(self.inflight) < max_inflight

    def entries_sent(self, last_index: int) -> None:
        """Note that entries from ``next_index`` to ``last_index`` are under way."""
        if self.probing:
            self.probe_sent = True
        else:
            self.next_index = last_index + 1
            self.inflight.append(last_index)

    def acknowledged(self, match_index: int) -> None:
        """Note that the follower's disk has everything up to ``match_index``; repeated or late news is harmless."""
        self.match_index = max(self.match_index, match_index)
        if self.probing:
            self.probing = self.probe_sent = False
            self.next_index = self.match_index + 1
        self.next_index = max(self.next_index, self.match_index + 1)
        while self.inflight and self.inflight[0] <= self.match_index:
            self.inflight.popleft()

    def refused(self, rejected_prev_index: int, hint_index: int) -> None:
        """Go back to where the logs may agree, unless the refusal is of an append that no longer matters."""
        if rejected_prev_index <= self.match_index:
            return
        if self.probing and rejected_prev_index != self.next_index - 1:
            return
        if rejected_prev_index >= self.next_index:
            return
        self.next_index = max(self.match_index, min(rejected_prev_index - 1, hint_index)) + 1
        self.probing, self.probe_sent = True, False
        self.inflight.clear()

    def check_invariants(self, last_index: int, max_inflight: int) -> None:
        """Assert the order of the indexes and the bound of the window."""
        assert 0 <= self.match_index < self.next_index <= last_index + 1, self
        assert len(self.inflight) <= max_inflight, self
        assert not (self.probing and self.inflight), self
        assert list(self.inflight) == sorted(self.inflight), self
