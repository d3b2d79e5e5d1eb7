"""The restarts of one process that ends. Pure.

A process that ends is started again after a pause, which doubles from 1 s to 30 s as long as lives are short. A process
that refuses its settings in its first life does not: nothing would change, and its operator is there.
"""

from __future__ import annotations

from typing import Final

from tidelog_foundation.config.process import EXIT_CONFIGURATION

FIRST_PAUSE_S: Final = 1.0
LAST_PAUSE_S: Final = 30.0
LONG_LIFE_S: Final = 60.0
"""The life after which the pause is the first again."""


class Restarts:
    """The ends of one process so far."""

    def __init__(self) -> None:
        self._lives = 0
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self, exit_code: int, life_s: float) -> float | None:
        """Return the time until the next start of a process that has ended; None if there is none."""
        self._lives += 1
        if self._lives == 1 and exit_code == EXIT_CONFIGURATION:
            return None
        if life_s >= LONG_LIFE_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LAST_PAUSE_S)
        return pause_s
