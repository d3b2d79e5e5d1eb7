"""Log lines for long waits: after 5 s, and then every 30 s.

All lines come from the logger ``tidelog.waiting`` at level WARNING.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar, Token
from typing import Final, NoReturn

logger = logging.getLogger("tidelog.waiting")

SILENT_S: Final = 5.0
"""The length from which waits are logged."""
AGAIN_S: Final = 30.0


class ReportedWait:
    """A wait on an event loop, as a context manager that logs long waits.

    The waiting coroutine gives its reason with :meth:`note`. The line of an outer wait includes the waits inside it.
    """

    __slots__ = ("_begun_s", "_inner", "_outer", "_reason", "_timer", "_token", "_what")

    def __init__(self, what: str) -> None:
        """Create a wait; ``what`` completes the line "Still waiting after 5 s for ..."."""
        self._what = what
        self._reason = ""
        self._inner: list[ReportedWait] = []
        self._outer: ReportedWait | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._begun_s = 0.0

    def __enter__(self) -> ReportedWait:
        """Begin the wait; requires a running event loop."""
        loop = asyncio.get_running_loop()
        self._begun_s = loop.time()
        outer = _current.get()
        # A task inherits the wait that started it, which may have ended since.
        if outer is not None and outer._is_under_way:
            self._outer = outer
            outer._inner.append(self)
        else:
            self._timer = loop.call_later(SILENT_S, self._log)
        self._token: Token[ReportedWait | None] = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """End the wait and its log lines."""
        _current.reset(self._token)
        if self._outer is not None:
            self._outer._inner.remove(self)
            self._outer = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, reason: object) -> None:
        """Set the reason why the wait continues, as of the last attempt."""
        self._reason = str(reason)

    @property
    def _is_under_way(self) -> bool:
        return self._timer is not None or self._outer is not None

    def _log(self) -> None:
        loop = asyncio.get_running_loop()
        logger.warning("Still waiting after %.0f s for %s", loop.time() - self._begun_s, self._text())
        self._timer = loop.call_later(AGAIN_S, self._log)

    def _text(self) -> str:
        if self._inner:
            return f"{self._what}, for {self._inner[-1]._text()}"
        return f"{self._what}: {self._reason}" if self._reason else self._what


class ReportedBlock:
    """A wait that blocks its thread, as a context manager that logs long waits."""

    __slots__ = ("_ended", "_reason", "_what")

    def __init__(self, what: str) -> None:
        """Create a wait; ``what`` completes the line "Still waiting after 5 s for ..."."""
        self._what = what
        self._reason = ""
        self._ended = threading.Event()

    def __enter__(self) -> ReportedBlock:
        """Begin the wait; a thread writes the lines."""
        threading.Thread(target=self._report, name="tidelog-reported-wait", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the wait and its log lines."""
        self._ended.set()

    def note(self, reason: object) -> None:
        """Set the reason why the wait continues."""
        self._reason = str(reason)

    def _report(self) -> None:
        begun_s = time.monotonic()
        pause_s = SILENT_S
        while not self._ended.wait(pause_s):
            text = f"{self._what}: {self._reason}" if self._reason else self._what
            logger.warning("Still waiting after %.0f s for %s", time.monotonic() - begun_s, text)
            pause_s = AGAIN_S


class WaitWatch:
    """A log of waits that are not coroutines, such as those in a queue, by periodic observation."""

    def __init__(self, what: str, now_s: Callable[[], float] = time.monotonic) -> None:
        """Create a watch; ``what`` completes the line "Still waiting after 5 s for ..."."""
        self._what = what
        self._now_s = now_s
        self._since_s: dict[Hashable, float] = {}
        self._silent_until_s = 0.0

    def see(self, waits: Mapping[Hashable, str]) -> None:
        """Record all current waits with their reasons, and log long ones.

        A key identifies one wait; under a new key, a wait begins now.
        """
        now_s = self._now_s()
        self._since_s = {key: self._since_s.get(key, now_s) for key in waits}
        long = [key for key, since_s in self._since_s.items() if now_s - since_s >= SILENT_S]
        if not long:
            self._silent_until_s = 0.0
        elif now_s >= self._silent_until_s:
            self._silent_until_s = now_s + AGAIN_S
            waited_s = now_s - min(self._since_s.values())
            shown = "; ".join(waits[key] for key in long[:_MOST_SHOWN])
            more = f" and {len(long) - _MOST_SHOWN} more" if len(long) > _MOST_SHOWN else ""
            logger.warning("Still waiting after %.0f s for %s: %s%s", waited_s, self._what, shown, more)


class Outage:
    """A continuing failure of a loop, which is reported once per reason."""

    def __init__(self) -> None:
        self._told: str | None = None

    def is_news(self, error: object) -> bool:
        """Return True if the failure should be reported; the next one with the same text should not."""
        text = str(error)
        is_news, self._told = text != self._told, text
        return is_news

    def end(self) -> None:
        """Record that an attempt succeeded."""
        self._told = None


async def watch_waits(what: str, waits: Callable[[], Mapping[Hashable, str]]) -> NoReturn:
    """Pass the result of ``waits`` to a :class:`WaitWatch` every second, until cancelled."""
    watch = WaitWatch(what)
    while True:
        await asyncio.sleep(_WATCH_EVERY_S)
        watch.see(waits())


_WATCH_EVERY_S: Final = 1.0
_MOST_SHOWN: Final = 3
_current: ContextVar[ReportedWait | None] = ContextVar("tidelog_reported_wait", default=None)
