"""The deadlines of a classic group: its members' sessions, the join phase and the sync phase.

:mod:`.expiration` has the effects of an expired deadline.
"""

from __future__ import annotations

from dataclasses import field

from tidelog_foundation.dataclass import dataclass


@dataclass(slots=True)
class InitialDelay:
    """The delay of the first rebalance of an empty group.

    It is extended, up to a rebalance timeout, while members join.
    """

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class Timers:
    """Deadlines in ms of the shard's clock. None means no deadline."""

    sessions: dict[str, int] = field(default_factory=dict)
    """Session deadlines by member id, including ids of members that have not joined yet."""
    join_ms: int | None = None
    initial: InitialDelay | None = None
    """Set during the join phase of a group that was empty."""
    sync_ms: int | None = None
    _wake_ms: int | None = None

    @property
    def next_deadline_ms(self) -> int | None:
        """A time before which no deadline passes: the earliest one set since :meth:`settle`."""
        return self._wake_ms

    def set_session(self, member_id: str, deadline_ms: int) -> None:
        """Set a member's session deadline."""
        self.sessions[member_id] = deadline_ms
        self._wake_by(deadline_ms)

    def set_join(self, deadline_ms: int, initial: InitialDelay | None = None) -> None:
        """Set the end of the join phase."""
        self.join_ms, self.initial = deadline_ms, initial
        self._wake_by(deadline_ms)

    def cancel_join(self) -> None:
        """Clear the end of the join phase."""
        self.join_ms = self.initial = None

    def set_sync(self, deadline_ms: int) -> None:
        """Set the end of the sync phase."""
        self.sync_ms = deadline_ms
        self._wake_by(deadline_ms)

    def cancel_session(self, member_id: str) -> None:
        """Clear a member's session deadline."""
        self.sessions.pop(member_id, None)

    def cancel_sync(self) -> None:
        """Clear the end of the sync phase."""
        self.sync_ms = None

    def settle(self) -> None:
        """Recompute the earliest deadline. Deadlines that moved may have left an earlier wake-up time."""
        deadlines = [*self.sessions.values(), *(at for at in (self.join_ms, self.sync_ms) if at is not None)]
        self._wake_ms = min(deadlines, default=None)

    def _wake_by(self, deadline_ms: int) -> None:
        if self._wake_ms is None or deadline_ms < self._wake_ms:
            self._wake_ms = deadline_ms
