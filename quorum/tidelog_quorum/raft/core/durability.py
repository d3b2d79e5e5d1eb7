"""The writes that the disk has not acknowledged yet, and the messages that must wait for them.

A promise is on disk before anybody hears of it (vote: figure 2; append: paper 5.3). An acknowledgement of entries waits
for all writes before it. Every other message promises only the term and the vote, so it waits for those alone: a long
write, such as a snapshot's, must not make a follower look dead.
"""

from __future__ import annotations

from collections import deque

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.raft.core.commands import Send
from tidelog_quorum.raft.core.messages import HardState


@dataclass(slots=True)
class _Write:
    sequence: int
    hard_state: HardState
    last_index: int


class Durability:
    """The prefix of the log and the hard state that would survive a crash.

    ``last_index`` counts only entries that are still in the log: an acknowledgement of a write whose entries were
    replaced meanwhile proves nothing about their replacements.
    """

    __slots__ = (
        "_deferred",
        "_deferred_for_term",
        "_hard_state_sequence",
        "_sequence",
        "_writes",
        "hard_state",
        "last_index",
    )

    def __init__(self, hard_state: HardState, last_index: int) -> None:
        self.hard_state = hard_state
        self.last_index = last_index
        self._sequence = 0
        self._hard_state_sequence = 0
        self._writes: deque[_Write] = deque()
        self._deferred: deque[tuple[int, Send]] = deque()
        self._deferred_for_term: deque[tuple[int, Send]] = deque()

    @property
    def newest_hard_state(self) -> HardState:
        """The hard state of the latest write, acknowledged or not."""
        return self._writes[-1].hard_state if self._writes else self.hard_state

    def issue(self, hard_state: HardState, last_index: int) -> int:
        """Record a write after which the disk holds this state; return its sequence."""
        self._sequence += 1
        if hard_state != self.newest_hard_state:
            self._hard_state_sequence = self._sequence
        self._writes.append(_Write(self._sequence, hard_state, last_index))
        return self._sequence

    def forget_from(self, index: int) -> None:
        """Record that the log dropped its entries from ``index`` on."""
        self.last_index = min(self.last_index, index - 1)
        for write in self._writes:
            write.last_index = min(write.last_index, index - 1)

    def restart_at(self, index: int) -> None:
        """Record that a snapshot up to ``index`` replaced the log on disk."""
        self.forget_from(index + 1)
        self.last_index = index

    def complete(self, sequence: int) -> None:
        """Record that all writes up to ``sequence`` would survive a crash."""
        while self._writes and self._writes[0].sequence <= sequence:
            write = self._writes.popleft()
            self.hard_state = write.hard_state
            self.last_index = max(self.last_index, write.last_index)

    def cancel(self, sequence: int) -> None:
        """Record that a write without a hard state was not done and never will be."""
        self._writes = deque(write for write in self._writes if write.sequence != sequence)

    def defer(self, send: Send, *, acknowledges_log: bool) -> None:
        """Keep a message until the writes that it depends on, of those issued so far, are acknowledged."""
        if acknowledges_log:
            self._deferred.append((self._sequence, send))
        else:
            self._deferred_for_term.append((self._hard_state_sequence, send))

    def release(self, term: int) -> list[Send]:
        """Return the messages that may leave, in order; drop those of any other term than ``term``."""
        if not self._deferred and not self._deferred_for_term:
            return []
        pending_from = self._writes[0].sequence if self._writes else self._sequence + 1
        released = []
        for deferred in (self._deferred_for_term, self._deferred):
            while deferred and deferred[0][0] < pending_from:
                send = deferred.popleft()[1]
                if send.message.term == term:
                    released.append(send)
        return released

    def check_invariants(self, log_last_index: int) -> None:
        """Assert that nothing counts as durable that is not in the log."""
        assert self.last_index <= log_last_index
        assert all(write.last_index <= log_last_index for write in self._writes)
        sequences = [write.sequence for write in self._writes]
        assert sequences == sorted(set(sequences))
