"""When a client may be used: from its construction to its close, and only in the process that made it.

A client that is forgotten, or still open when the interpreter ends, is stopped here. The child of a fork has
its parent's objects but neither its network thread nor its connections, and a lock may be held there by a thread
that does not exist: every client of the parent is over in the child, before any of its locks is touched.
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
    """Of one client. It ends once; may be asked from any thread."""

    __slots__ = ("__weakref__", "_client", "_finalizer", "_stop", "ended")

    def __init__(self, owner: object, client: str, stop: Stop) -> None:
        """``client`` names it in errors ("producer"); ``stop`` ends its tasks and must not refer to ``owner``."""
        self._client = client
        self._stop = stop
        self.ended: tuple[ErrorCode, str] | None = None
        """Why it is over: what :meth:`check` raises; None while it is not."""
        self._finalizer = weakref.finalize(owner, self._forgotten)
        self._finalizer.atexit = False
        _open.add(self)

    @property
    def is_over(self) -> bool:
        """Whether the client was closed, or belongs to the process that this one was forked from."""
        return self.ended is not None

    def check(self) -> None:
        """Raise when the client is over.

        Raises:
            TidelogError: _DESTROY after :meth:`end`, _STATE in a process that was forked from the client's.
        """
        if self.ended is not None:
            raise error_for(*self.ended)

    def end(self) -> None:
        """From now on :meth:`check` raises _DESTROY."""
        self.ended = self.ended or (ErrorCode._DESTROY, f"the {self._client} is closed")
        self._finalizer.detach()
        _open.discard(self)

    def stop(self) -> None:
        """End the client's tasks and wait for that.

        Raises:
            TidelogError: _TIMED_OUT.
        """
        run_sync(self._stop(), _CLOSE_TIMEOUT_S)

    async def stop_awaited(self) -> None:
        """End the client's tasks and await that in the caller's event loop.

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
            # A client that never reached the network has nothing to stop.
            if has_network_loop():
                # The collector may run on any thread, the network's own included: it must not wait.
                stopping = asyncio.run_coroutine_threadsafe(self._stop(), network_loop())
                _stopping.add(stopping)
                stopping.add_done_callback(_stopping.discard)

    def _end_in_child(self) -> None:
        text = f"the {self._client} belongs to the process that this one was forked from: make a new one here"
        self.ended = self.ended or (ErrorCode._STATE, text)

    async def _end_at_exit(self) -> None:
        self.end()
        await self._stop()


_open: weakref.WeakSet[Lifetime] = weakref.WeakSet()
_stopping: set[concurrent.futures.Future[None]] = set()
"""Of clients that were forgotten; the interpreter waits for them before the loop ends."""


def _end_all_in_child() -> None:
    for lifetime in list(_open):
        lifetime._end_in_child()
    _open.clear()
    _stopping.clear()


def _end_all_at_exit() -> None:
    async def end_all() -> None:
        await asyncio.gather(*(lifetime._end_at_exit() for lifetime in list(_open)), return_exceptions=True)

    # The loop cannot start in an interpreter that is shutting down, and without it no client has anything to stop.
    if not has_network_loop():
        return
    if _open:
        with contextlib.suppress(TidelogError):
            run_sync(end_all(), _EXIT_TIMEOUT_S)
    concurrent.futures.wait(list(_stopping), _EXIT_TIMEOUT_S)


os.register_at_fork(after_in_child=_end_all_in_child)
atexit.register(_end_all_at_exit)
