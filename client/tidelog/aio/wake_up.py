"""A wake-up from any thread into one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable


class WakeUp:
    """A wake-up that the loop receives soon after :meth:`send`: once for many calls, and at least once after the last.

    ``on_wake`` is called then, unless its object was garbage-collected. All methods but :meth:`send` belong to the
    loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_wake: Callable[[], object] | None = None) -> None:
        """The weak reference to the method ``on_wake`` keeps its client collectable."""
        self._loop = loop
        self._on_wake = None if on_wake is None else weakref.WeakMethod(on_wake)
        self._is_sent = False
        self._received = asyncio.Event()

    def send(self) -> None:
        """Wake the loop. Thread-safe; never waits, so it may run under a lock that the loop takes."""
        if not self._is_sent:
            self._is_sent = True
            # The application may have closed its loop without closing the client.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._receive)

    async def wait_until(self, is_met: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a condition that becomes true only before a wake-up; return False on timeout."""
        if is_met() or (timeout_s is not None and timeout_s <= 0):
            return is_met()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_met():
                    await self._received.wait()
        return is_met()

    def _receive(self) -> None:
        # Reset first, so that any later change wakes the loop again.
        self._is_sent = False
        on_wake = None if self._on_wake is None else self._on_wake()
        if on_wake is not None:
            on_wake()
        # Wake all current waiters; later ones wait for the next one.
        self._received.set()
        self._received.clear()
