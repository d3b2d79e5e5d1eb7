"""How long to wait before the next attempt: exponential with jitter (KIP-580)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2
"""Each wait is up to a fifth shorter or longer, so that clients do not come back all at once."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """``initial_ms`` doubled per attempt up to ``max_ms``, times a random factor from 0.8 to 1.2."""

    initial_ms: float
    max_ms: float
    random: Callable[[], float]

    def wait_ms(self, attempt: int) -> float:
        """Return the wait after ``attempt`` failures in a row (1 for the first)."""
        wait: float = self.initial_ms * 2.0 ** min(attempt - 1, 30)
        return min(wait * (1 - JITTER + 2 * JITTER * self.random()), self.max_ms)
