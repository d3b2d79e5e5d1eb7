"""Carries "something has changed" from any thread into one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable


class Bell:
    """Rung from any thread, it is heard in the loop soon after: once for many rings, and at least once after the last.

    ``on_ring`` is called then, unless its object was forgotten. All but :meth:`ring` is for the loop's own thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], object] | None = None) -> None:
        """``on_ring`` is a method: the network thread, which knows the bell, must not keep a client alive by it."""
        self._loop = loop
        self._on_ring = None if on_ring is None else weakref.WeakMethod(on_ring)
        self._is_rung = False
        self._heard = asyncio.Event()

    def ring(self) -> None:
        """Tell the loop; from any thread, also under a lock that the loop takes: it never waits."""
        if not self._is_rung:
            self._is_rung = True
            # The application may have closed its loop without closing the client.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hear)

    async def wait_until(self, is_met: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until a condition holds that can only come to hold with a ring; returns whether it did in time."""
        if is_met() or (timeout_s is not None and timeout_s <= 0):
            return is_met()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_met():
                    await self._heard.wait()
        return is_met()

    def _hear(self) -> None:
        # Before anything is looked at: what changes from here on rings again.
        self._is_rung = False
        on_ring = None if self._on_ring is None else self._on_ring()
        if on_ring is not None:
            on_ring()
        # All who wait now wake up, whoever comes later waits for the next time.
        self._heard.set()
        self._heard.clear()
