"""The times at which a client replaces its token, as in Kafka's ExpiringCredentialRefreshingLogin."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RefreshWindow:
    """The rules of ``sasl.login.refresh.*``. ``fraction`` is the window's factor with its jitter."""

    fraction: float
    min_period_ms: int
    buffer_ms: int

    def refresh_at_ms(self, now_ms: int, issued_at_ms: int, expires_at_ms: int) -> int:
        """Return the time after which a token is replaced.

        The minimum period and the buffer have no effect on a token that does not outlast both.
        """
        refresh_ms = int(issued_at_ms + (expires_at_ms - issued_at_ms) * self.fraction)
        if expires_at_ms - now_ms < self.min_period_ms + self.buffer_ms:
            return refresh_ms
        return min(max(refresh_ms, now_ms + self.min_period_ms), expires_at_ms - self.buffer_ms)
