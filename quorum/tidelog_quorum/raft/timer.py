"""A timer on the event loop for deadlines that move often and rarely expire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls back once at the latest set deadline, in milliseconds of the loop's clock.

    Moving a deadline later, as each heartbeat does with an election's, costs nothing: the timer fires at the old
    deadline and is set again only then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._deadline_ms: int | None = None
        self._armed_ms: int | None = None
        self._handle: asyncio.TimerHandle | asyncio.Handle | None = None

    def now_ms(self) -> int:
        """Return the loop's time."""
        return int(self._loop.time() * 1000)

    def set(self, deadline_ms: int | None) -> None:
        """Replace the deadline; None clears it."""
        self._deadline_ms = deadline_ms
        if deadline_ms is None or (self._armed_ms is not None and self._armed_ms <= deadline_ms):
            return
        self._disarm()
        self._armed_ms = deadline_ms
        if deadline_ms <= self.now_ms():
            self._handle = self._loop.call_soon(self._fire)
        else:
            self._handle = self._loop.call_at(deadline_ms / 1000, self._fire)

    def cancel(self) -> None:
        """Clear the deadline."""
        self._deadline_ms = None
        self._disarm()

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._armed_ms = None

    def _fire(self) -> None:
        self._handle = self._armed_ms = None
        deadline_ms, self._deadline_ms = self._deadline_ms, None
        if deadline_ms is None:
            return
        if deadline_ms > self.now_ms():
            self.set(deadline_ms)
        else:
            self._callback()
