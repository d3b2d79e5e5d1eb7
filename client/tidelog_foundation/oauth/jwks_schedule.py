"""The times at which a key set is fetched again, without I/O and clock.

Rules, after Kafka's RefreshingHttpsJwks:

- a set is fetched again after the refresh interval;
- after a failure, the next attempt follows after a backoff that doubles up to its maximum;
- a token with an unknown key id brings the next attempt forward, since the issuer may have new keys. As anybody can
  send such tokens, this happens at most once per maximum backoff.
"""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass

_MAX_DOUBLINGS: Final = 30


@dataclass(slots=True)
class JwksSchedule:
    """The schedule of one key set. The caller attempts a fetch at ``next_attempt_ms`` and reports how it ended."""

    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    next_attempt_ms: int = 0
    _failures: int = 0
    _last_expedited_ms: int | None = None

    def succeeded(self, now_ms: int) -> None:
        """Schedule the next regular fetch."""
        self._failures = 0
        self.next_attempt_ms = now_ms + self.refresh_ms

    def failed(self, now_ms: int) -> None:
        """Schedule the next attempt after a failure."""
        backoff_ms = self.retry_backoff_ms << min(self._failures, _MAX_DOUBLINGS)
        self._failures += 1
        self.next_attempt_ms = now_ms + min(backoff_ms, self.retry_backoff_max_ms)

    def expedite(self, now_ms: int) -> bool:
        """Bring the next attempt forward because a key is unknown; return whether it is due now."""
        last = self._last_expedited_ms
        if self._failures or (last is not None and now_ms - last < self.retry_backoff_max_ms):
            return False
        self._last_expedited_ms = now_ms
        self.next_attempt_ms = min(self.next_attempt_ms, now_ms)
        return True
