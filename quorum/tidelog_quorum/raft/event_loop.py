"""Timers of the event loop, and blocking calls beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


async def call_in_thread(name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call ``function`` in a new daemon thread and return or raise its result.

    A cancellation does not stop the thread, and the thread does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[R] = loop.create_future()

    def finish(result: R | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome: tuple[R | None, BaseException | None] = function(*args, **kwargs), None
        except BaseException as error:  # noqa: BLE001  # raised where it is awaited
            outcome = None, error
        try:
            loop.call_soon_threadsafe(finish, *outcome)
        except RuntimeError:
            # The loop has closed: nobody waits any more.
            return

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


class DeadlineTimer:
    """A timer for deadlines that move often and rarely expire: it calls back once at the latest set deadline.

    Deadlines are milliseconds of the loop's clock.

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
