"""Log lines about events of the cluster: leaderships, ISRs, fencing, members.

One event has one line. A failure can cause thousands of events, whose lines would fill the disk and keep the event loop
busy, so their number is bounded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

MAX_LINES: Final = 100
PERIOD_S: Final = 10.0


class EventLog:
    """Writes up to ``MAX_LINES`` lines per ``PERIOD_S`` at INFO, and then one line with the number of omitted events.

    A logger at DEBUG writes all of them. Used on one thread.
    """

    def __init__(self, logger: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._period_ends = float("-inf")
        self._written = 0
        self._omitted = 0

    def write(self, text: str, *values: object) -> None:
        """Write the line of an event, or count it as omitted."""
        logger = self._logger
        if not logger.isEnabledFor(logging.INFO):
            return
        now = self._clock()
        if now >= self._period_ends:
            self.summarize()
            self._period_ends, self._written = now + PERIOD_S, 0
        if self._written < MAX_LINES or logger.isEnabledFor(logging.DEBUG):
            self._written += 1
            logger.info(text, *values)
        else:
            self._omitted += 1

    def summarize(self) -> None:
        """Write how many events were omitted since the last summary. Call it at the end of a step with many events."""
        if self._omitted:
            self._logger.info("%d more events have no line; the level DEBUG shows all", self._omitted)
            self._omitted = 0
