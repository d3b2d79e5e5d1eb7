"""Spreads records evenly over time. Pure: the clock is given."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """A steady rate of records per second; None for as fast as can be. One thread uses it.

    A delay is made up for: the times at which records are due do not move, so that a latency that counts from them
    hides no wait.
    """

    def __init__(self, rate: float | None, now_s: Callable[[], float]) -> None:
        self._rate = rate
        self._now_s = now_s
        self._started_s = now_s()
        self._given = 0

    def next_due_s(self) -> float:
        """Return when the next record is due: now without a rate."""
        self._given += 1
        return self._now_s() if self._rate is None else self._started_s + (self._given - 1) / self._rate

    def left_s(self, due_s: float) -> float:
        """Return how long it is until then, 0 when it is over."""
        return max(0.0, due_s - self._now_s())
