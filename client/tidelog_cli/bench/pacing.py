"""Spreads records evenly over time. Pure: the caller passes the clock."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """A steady rate of records per second; None for as fast as possible. One thread uses it.

    A delay is caught up: due times do not move, so that a latency counted from them includes every wait.
    """

    def __init__(self, rate: float | None, now_s: Callable[[], float]) -> None:
        self._rate = rate
        self._now_s = now_s
        self._started_s = now_s()
        self._given = 0

    def next_due_s(self) -> float:
        """Return the due time of the next record: now without a rate."""
        self._given += 1
        return self._now_s() if self._rate is None else self._started_s + (self._given - 1) / self._rate

    def left_s(self, due_s: float) -> float:
        """Return the time left until ``due_s``, 0 if it has passed."""
        return max(0.0, due_s - self._now_s())
