"""The application's callbacks, functions or coroutine functions, run in its event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


class Callbacks:
    """The callbacks of one client. They start in the order of :meth:`call`; coroutines may overlap.

    Their exceptions go to the loop's exception handler, as with ``loop.call_soon``.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: str) -> None:
        self._loop = loop
        self._owner = owner
        self._running: set[asyncio.Task[Any]] = set()

    def call(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call a function now, or start a coroutine function soon."""
        try:
            outcome = callback(*arguments)
        except Exception as error:  # noqa: BLE001 - the application's error goes to its loop
            self._report(error, callback)
            return
        if inspect.isawaitable(outcome):
            task = self._loop.create_task(_await(outcome), name=f"{self._owner}-callback")
            self._running.add(task)
            task.add_done_callback(lambda done: self._ended(done, callback))

    def wrap(self, callback: object) -> object:
        """Return a function that runs :meth:`call`; return an object that is not callable unchanged, for later
        rejection.
        """
        return functools.partial(self.call, callback) if callable(callback) else callback

    async def ended(self) -> None:
        """Wait until all started coroutines have ended, except the caller's own."""
        others = self._running - {asyncio.current_task()}
        if others:
            await asyncio.wait(others)

    def _ended(self, task: asyncio.Task[Any], callback: Callable[..., object]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(error, callback)

    def _report(self, error: BaseException, callback: Callable[..., object]) -> None:
        text = f"a callback of the {self._owner} failed: {callback!r}"
        self._loop.call_exception_handler({"message": text, "exception": error})


async def _await(outcome: Awaitable[object]) -> object:
    return await outcome
