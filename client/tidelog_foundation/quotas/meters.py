"""The measured rates of clients with a limit, and the delays of those that exceed it (Kafka's ClientQuotaManager)."""

from __future__ import annotations

from tidelog_foundation.quotas.limits import ClientLimits
from tidelog_foundation.quotas.rate import SampledRate, Windows
from tidelog_foundation.quotas.recency import MAX_CLIENTS, RecentClients


class Meter:
    """The rate of the clients that share a limit."""

    __slots__ = ("_longest_ms", "_rate", "_windows", "limit", "muted_until_ms")

    def __init__(self, windows: Windows, longest_ms: int | None) -> None:
        self._windows = windows
        self._longest_ms = longest_ms
        self._rate = SampledRate(windows)
        self.limit = 0.0
        """The limit per second."""
        self.muted_until_ms = 0
        """The time until which the clients are delayed."""

    @property
    def largest_value(self) -> float:
        """The largest value that alone does not exceed the limit (``maxValueInQuotaWindow``)."""
        return self.limit * (self._windows.samples - 1) * self._windows.window_ms / 1_000

    def rate(self, now_ms: int) -> float:
        """Return the rate per second."""
        return self._rate.rate(now_ms)

    def record(self, value: float, now_ms: int) -> int:
        """Record a value, and return the milliseconds for which the client is delayed."""
        self._rate.record(value, now_ms)
        excess_ms = self._rate.excess_ms(self.limit, now_ms)
        if self._longest_ms is not None:
            excess_ms = min(excess_ms, self._longest_ms)
        if excess_ms:
            self.muted_until_ms = max(self.muted_until_ms, now_ms + excess_ms)
        return excess_ms

    def try_record(self, value: float, now_ms: int) -> int:
        """Record a value unless it exceeds the limit, and return the milliseconds for which the client is delayed."""
        excess_ms = self.record(value, now_ms)
        if excess_ms:
            self._rate.record(-value, now_ms)
        return excess_ms

    def note(self, value: float, now_ms: int) -> None:
        """Record a value that delays only later requests."""
        self._rate.record(value, now_ms)


class Meters:
    """The meters of one quota. ``longest_ms`` bounds a delay."""

    def __init__(self, windows: Windows, longest_ms: int | None = None, max_clients: int = MAX_CLIENTS) -> None:
        self._windows = windows
        self._longest_ms = longest_ms
        self._limits = ClientLimits({}, "")
        self._clients: RecentClients[tuple[str, str], Meter] = RecentClients(windows.span_ms, max_clients)

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def is_enabled(self) -> bool:
        """True if any client has a limit."""
        return bool(self._limits)

    def change_limits(self, limits: ClientLimits) -> None:
        """Apply limits from now on. What was measured still counts; without limits it is forgotten."""
        self._limits = limits
        if not limits:
            self._clients.clear()

    def meter_of(self, user: str, client_id: str, now_ms: int) -> Meter | None:
        """Return the meter of a client, or None if it has no limit."""
        shared = self._limits.limit_of(user, client_id)
        if shared is None:
            return None
        meter = self._clients.use((shared.user, shared.client_id), now_ms, self._make)
        meter.limit = shared.limit
        return meter

    def delay_ms(self, user: str, client_id: str, now_ms: int) -> int:
        """Return the milliseconds for which a client is still delayed."""
        shared = self._limits.limit_of(user, client_id)
        meter = None if shared is None else self._clients.find((shared.user, shared.client_id))
        return 0 if meter is None else max(0, meter.muted_until_ms - now_ms)

    def _make(self) -> Meter:
        return Meter(self._windows, self._longest_ms)
