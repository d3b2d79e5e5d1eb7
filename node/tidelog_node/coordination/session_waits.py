"""Calls that wait while their node has no session with the controllers and may not return committed offsets.

A refused OffsetFetch is costly, since librdkafka drops the partitions of the request if its assignment has changed
meanwhile. Most sessions return within the wait, and the call then succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog_node.event_loop import Clock

_INTERVAL_S = 0.02


class SessionWaits:
    """The calls of a node that wait for a session: at most ``max_waiting`` calls, for up to ``timeout_ms`` each."""

    def __init__(self, has_session: Callable[[], bool], clock: Clock, timeout_ms: int, max_waiting: int) -> None:
        self._has_session = has_session
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._max_waiting = max_waiting
        self._deadlines: dict[asyncio.Future[None], int] = {}
        """Earliest first, since all calls wait for the same time."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return len(self._deadlines)

    async def wait(self) -> None:
        """Return when there is a session, after the timeout, or at once if too many calls already wait."""
        if self._has_session() or len(self._deadlines) >= self._max_waiting:
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._deadlines[ended] = self._clock.monotonic_ms() + self._timeout_ms
        if self._timer is None:
            self._timer = loop.call_later(_INTERVAL_S, self._look)
        try:
            await ended
        finally:
            self._deadlines.pop(ended, None)

    def end(self) -> None:
        """End the wait of all calls."""
        for ended in self._deadlines:
            _finish(ended)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """End the waits that are over, and restart the timer if others remain."""
        self._timer = None
        if self._has_session():
            self.end()
            return
        now_ms = self._clock.monotonic_ms()
        for ended, deadline_ms in self._deadlines.items():
            if deadline_ms > now_ms:
                self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._look)
                return
            _finish(ended)


def _finish(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
