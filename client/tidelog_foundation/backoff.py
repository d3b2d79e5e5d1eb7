"""The wait before the next attempt: exponential back-off with jitter (KIP-580). Pure."""

from __future__ import annotations

from collections.abc import Callable

from tidelog_foundation.dataclass import dataclass

JITTER = 0.2
"""The jitter's share of each wait, so that clients do not all return at once."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A back-off of ``initial_ms``, doubled per attempt up to ``max_ms``, times a random factor from 0.8 to 1.2.

    No wait is longer than ``max_ms``. ``random`` returns a number from 0 to 1.
    """

    initial_ms: float
    max_ms: float
    random: Callable[[], float]

    def wait_ms(self, attempt: int) -> float:
        """Return the wait after ``attempt`` consecutive failures (1 after the first)."""
        wait: float = self.initial_ms * 2.0 ** min(attempt - 1, 30)
        return min(wait * (1 - JITTER + 2 * JITTER * self.random()), self.max_ms)
