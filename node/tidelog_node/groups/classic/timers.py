"""The deadlines of a classic group: its members' sessions, the join phase, the sync phase."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class InitialDelay:
    """The rebalance of a group that was empty: it waits as long as members come, up to a rebalance timeout."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class Timers:
    """Deadlines in ms of the shard's clock; None where there is none."""

    sessions: dict[str, int] = field(default_factory=dict)
    """By member id, those of members that have not joined with their new id included."""
    join_ms: int | None = None
    initial: InitialDelay | None = None
    """Set while the join phase is that of a group that was empty."""
    sync_ms: int | None = None
    _wake_ms: int | None = None

    @property
    def next_deadline_ms(self) -> int | None:
        """A time before which no deadline is over: the earliest one that was set since :meth:`settle`."""
        return self._wake_ms

    def set_session(self, member_id: str, deadline_ms: int) -> None:
        """Give a member until then."""
        self.sessions[member_id] = deadline_ms
        self._wake_by(deadline_ms)

    def set_join(self, deadline_ms: int, initial: InitialDelay | None = None) -> None:
        """End the join phase then."""
        self.join_ms, self.initial = deadline_ms, initial
        self._wake_by(deadline_ms)

    def cancel_join(self) -> None:
        """End the wait of the join phase."""
        self.join_ms = self.initial = None

    def set_sync(self, deadline_ms: int) -> None:
        """End the sync phase then."""
        self.sync_ms = deadline_ms
        self._wake_by(deadline_ms)

    def cancel_session(self, member_id: str) -> None:
        """Forget a member's deadline."""
        self.sessions.pop(member_id, None)

    def cancel_sync(self) -> None:
        """End the wait of the sync phase."""
        self.sync_ms = None

    def settle(self) -> None:
        """Find the earliest deadline anew: those that moved have left a time behind at which nothing is over."""
        deadlines = [*self.sessions.values(), *(at for at in (self.join_ms, self.sync_ms) if at is not None)]
        self._wake_ms = min(deadlines, default=None)

    def _wake_by(self, deadline_ms: int) -> None:
        if self._wake_ms is None or deadline_ms < self._wake_ms:
            self._wake_ms = deadline_ms
