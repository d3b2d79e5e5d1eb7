"""Deadlines of a run's waits. Waits that follow each other share one, so that their limits do not add up."""

from __future__ import annotations

import time


class Deadline:
    """A point in time, ``limit_s`` seconds after its creation."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._end_s = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """The seconds until the deadline, 0 after it."""
        return max(0.0, self._end_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return not self.left_s

    def within(self, limit_s: float) -> Deadline:
        """Return the deadline of a wait of at most ``limit_s``, which does not end after this one."""
        return Deadline(min(limit_s, self.left_s))
