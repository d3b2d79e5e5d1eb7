"""A token bucket (KIP-599): bursts use tokens that were saved, and a debt is paid at the rate of the limit.

A sampled rate stays above its limit until a burst leaves the window. A bucket delays a client only for the time that
the burst takes at the limit's rate.
"""

from __future__ import annotations

import math

from tidelog_foundation.quotas.rate import Windows


class TokenBucket:
    """The tokens of one client, as in Kafka's TokenBucket. It begins full: with those of ``windows.span_ms``."""

    __slots__ = ("_tokens", "_updated_ms", "_windows", "limit")

    def __init__(self, windows: Windows, limit: float, now_ms: int) -> None:
        self._windows = windows
        self.limit = limit
        """The tokens that are added per second. It may be changed."""
        self._updated_ms = now_ms
        self._tokens = self.burst

    @property
    def burst(self) -> float:
        """The most tokens."""
        return self.limit * self._windows.span_ms / 1_000

    def take(self, count: float, now_ms: int) -> None:
        """Take tokens, if necessary more than there are."""
        self._fill(now_ms)
        self._tokens = min(self.burst, self._tokens - count)

    def debt_ms(self, now_ms: int) -> int:
        """Return the time after which the tokens are at least zero, 0 if they are now."""
        self._fill(now_ms)
        return math.floor(-self._tokens / self.limit * 1_000 + 0.5) if self._tokens < 0 else 0

    def _fill(self, now_ms: int) -> None:
        self._tokens = min(self.burst, self._tokens + self.limit * (now_ms - self._updated_ms) / 1_000)
        self._updated_ms = now_ms
