"""A wake-up from any thread into one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable


class Bell:
    """A wake-up that the loop receives soon after :meth:`ring`: once for many calls, and at least once after the last.

    ``on_ring`` is called then, unless its object was garbage-collected. All methods but :meth:`ring` belong to the
    loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], object] | None = None) -> None:
        """Create a bell; the weak reference to the method ``on_ring`` keeps its client collectable."""
        self._loop = loop
        self._on_ring = None if on_ring is None else weakref.WeakMethod(on_ring)
        self._is_rung = False
        self._heard = asyncio.Event()

    def ring(self) -> None:
        """Wake the loop. Thread-safe; never waits, so it may run under a lock that the loop takes."""
        if not self._is_rung:
            self._is_rung = True
            # The application may have closed its loop without closing the client.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hear)

    async def wait_until(self, is_met: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for a condition that becomes true only with a ring; return False on timeout."""
        if is_met() or (timeout_s is not None and timeout_s <= 0):
            return is_met()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not is_met():
                    await self._heard.wait()
        return is_met()

    def _hear(self) -> None:
        # Reset first, so that any later change rings again.
        self._is_rung = False
        on_ring = None if self._on_ring is None else self._on_ring()
        if on_ring is not None:
            on_ring()
        # Wake all current waiters; later ones wait for the next ring.
        self._heard.set()
        self._heard.clear()
