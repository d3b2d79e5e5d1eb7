"""The time of attempts, and the wait before the next one: exponential back-off with jitter (KIP-580)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2
"""The jitter's share of each wait, so that clients do not all return at once."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """A back-off of ``initial_ms``, doubled per attempt up to ``max_ms``, times a random factor from 0.8 to 1.2."""

    initial_ms: float
    max_ms: float
    random: Callable[[], float]

    def wait_ms(self, attempt: int) -> float:
        """Return the wait after ``attempt`` consecutive failures (1 after the first)."""
        wait: float = self.initial_ms * 2.0 ** min(attempt - 1, 30)
        return min(wait * (1 - JITTER + 2 * JITTER * self.random()), self.max_ms)


def now_ms() -> float:
    """Return the time of the running loop, in milliseconds."""
    return asyncio.get_running_loop().time() * 1000
