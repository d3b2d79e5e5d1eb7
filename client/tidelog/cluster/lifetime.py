"""The lifetime of a client: from its construction to its close, and only in the process that created it.

This module stops a client that was garbage-collected, or that is still open at the interpreter's exit. A forked child
has its parent's objects but neither its network thread nor its connections, and a thread that does not exist there may
hold a lock. Every client of the parent therefore ends in the child before anything touches its locks.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import has_network_loop, network_loop, run_on_network, run_sync

_CLOSE_TIMEOUT_S = 10.0
_EXIT_TIMEOUT_S = 2.0

Stop = Callable[[], Coroutine[Any, Any, None]]


class Lifetime:
    """The lifetime of one client. It ends once. Thread-safe."""

    __slots__ = ("__weakref__", "_client", "_finalizer", "_stop", "ended")

    def __init__(self, owner: object, client: str, stop: Stop) -> None:
        """Begin a lifetime. ``client`` names it in errors ("producer"); ``stop`` ends its tasks and must not refer to
        ``owner``.
        """
        self._client = client
        self._stop = stop
        self.ended: tuple[ErrorCode, str] | None = None
        """The error that :meth:`check` raises after the end; None before."""
        self._finalizer = weakref.finalize(owner, self._forgotten)
        self._finalizer.atexit = False
        _open.add(self)

    @property
    def is_over(self) -> bool:
        """True if the client is closed, or belongs to the parent of this forked process."""
        return self.ended is not None

    def check(self) -> None:
        """Raise an error if the lifetime is over.

        Raises:
            TidelogError: _DESTROY after :meth:`end`, _STATE in a fork of the client's process.
        """
        if self.ended is not None:
            raise error_for(*self.ended)

    def end(self) -> None:
        """End the lifetime; :meth:`check` then raises _DESTROY."""
        self.ended = self.ended or (ErrorCode._DESTROY, f"the {self._client} is closed")
        self._finalizer.detach()
        _open.discard(self)

    def stop(self) -> None:
        """Stop the client's tasks and wait for their end.

        Raises:
            TidelogError: _TIMED_OUT.
        """
        run_sync(self._stop(), _CLOSE_TIMEOUT_S)

    async def stop_awaited(self) -> None:
        """Stop the client's tasks and await their end in the caller's event loop.

        Raises:
            TidelogError: _TIMED_OUT.
        """
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await run_on_network(self._stop())
        except TimeoutError as error:
            text = f"the {self._client} did not end within {_CLOSE_TIMEOUT_S} seconds"
            raise error_for(ErrorCode._TIMED_OUT, text) from error

    def _forgotten(self) -> None:
        if not self.is_over:
            self.end()
            # A client that never used the network has nothing to stop.
            if has_network_loop():
                # The collector may run on any thread, the network thread included, so it must not wait.
                stopping = asyncio.run_coroutine_threadsafe(self._stop(), network_loop())
                _stopping.add(stopping)
                stopping.add_done_callback(_stopping.discard)

    def _end_in_child(self) -> None:
        text = f"the {self._client} belongs to the parent of this forked process: create a new one here"
        self.ended = self.ended or (ErrorCode._STATE, text)

    async def _end_at_exit(self) -> None:
        self.end()
        await self._stop()


_open: weakref.WeakSet[Lifetime] = weakref.WeakSet()
_stopping: set[concurrent.futures.Future[None]] = set()
"""The ends of garbage-collected clients; the interpreter waits for them before the loop ends."""


def _end_all_in_child() -> None:
    for lifetime in list(_open):
        lifetime._end_in_child()
    _open.clear()
    _stopping.clear()


def _end_all_at_exit() -> None:
    async def end_all() -> None:
        await asyncio.gather(*(lifetime._end_at_exit() for lifetime in list(_open)), return_exceptions=True)

    # The loop cannot start during the interpreter's shutdown, and without it no client has anything to stop.
    if not has_network_loop():
        return
    if _open:
        with contextlib.suppress(TidelogError):
            run_sync(end_all(), _EXIT_TIMEOUT_S)
    concurrent.futures.wait(list(_stopping), _EXIT_TIMEOUT_S)


os.register_at_fork(after_in_child=_end_all_in_child)
atexit.register(_end_all_at_exit)
