"""One snapshot that the leader is sending to one replica (paper 7, figure 13).

One chunk is in flight at a time; the answer names the next position. After the last one, the leader only sends an empty
chunk now and then, which asks whether the snapshot is installed. A chunk without an answer is sent again after a
heartbeat interval, then after twice that, and so on up to half an election timeout: the chunk, its answer or the file
may be lost. A snapshot whose transfer made no progress for an election timeout gives way to a newer one, if there is
one. Otherwise the transfer of the older one continues, because it would never end if each new snapshot restarted it.
"""

from __future__ import annotations

from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.messages import Snapshot, SnapshotResponse


class OutgoingSnapshot:
    """The state of the transfer; ``position`` is that of the chunk in flight."""

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

    def is_meant_by(self, response: SnapshotResponse) -> bool:
        """Return whether an answer is about this snapshot and not an older one."""
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
