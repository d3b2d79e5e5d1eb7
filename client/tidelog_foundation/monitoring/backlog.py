"""The time for which a process has not reached a position that was known to it, without a clock."""

from __future__ import annotations


class Backlog:
    """Compares a position, such as an applied offset, with a target that moves ahead of it.

    The target of one moment is remembered until it is reached. A position that follows a moving target at a constant
    distance is therefore not behind for long, however often it is observed.
    """

    def __init__(self) -> None:
        self.has_caught_up = False
        """Whether a target has been reached since the start."""
        self._target: int | None = None
        self._since_ms = 0

    def observe(self, reached: int, target: int, now_ms: int) -> None:
        """Record the position and the newest target."""
        if self._target is None and (target > reached or not self.has_caught_up):
            self._target, self._since_ms = target, now_ms
        if self._target is not None and reached >= self._target:
            self.has_caught_up = True
            self._target = None

    def age_ms(self, now_ms: int) -> int:
        """Return for how long the oldest target that was not reached has been known, 0 if all were."""
        return 0 if self._target is None else now_ms - self._since_ms
