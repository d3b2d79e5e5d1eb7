"""A limit on the lines that peers can cause in a log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_PER_PERIOD: Final = 10
_PERIOD_S: Final = 10.0


class LogLimit:
    """A limit of ten lines per ten seconds. The first line after that states how many were omitted."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._logger = logger
        self._clock = clock
        self._period_ends = float("-inf")
        self._passed = 0
        self._suppressed = 0

    def warning(self, text: str, *values: object) -> None:
        """Log a line, or count it as omitted."""
        self.log(logging.WARNING, text, *values)

    def log(self, level: int, text: str, *values: object, error: BaseException | None = None) -> None:
        """Log a line at this level with the traceback of ``error``, or count it as omitted."""
        if not self._logger.isEnabledFor(level):
            return
        now = self._clock()
        if now >= self._period_ends:
            self._period_ends = now + _PERIOD_S
            self._passed = 0
        if self._passed >= _PER_PERIOD:
            self._suppressed += 1
            return
        self._passed += 1
        if self._suppressed:
            self._logger.log(level, "%d lines like the next were suppressed", self._suppressed)
            self._suppressed = 0
        self._logger.log(level, text, *values, exc_info=error)
