"""The application's event loop: wake-ups from any thread, and callbacks and rebalances that run in it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

from tidelog.consumer import Consumer
from tidelog.consumer.group import Rebalance
from tidelog_foundation.errors import ErrorCode, error_for


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


class Rebalances:
    """One consumer's rebalances. A rebalance runs to its end even if its caller is cancelled."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumer: Consumer) -> None:
        self._loop = loop
        self._consumer = consumer
        self._running: asyncio.Task[None] | None = None

    def check_outside(self, what: str) -> None:
        """Raise _STATE inside a rebalance callback, which would wait for itself."""
        if self._running is not None and asyncio.current_task() is self._running:
            raise error_for(ErrorCode._STATE, f"{what}() was called in a rebalance callback and would wait for it")

    async def serve(self, application: Any, *, is_reading: bool) -> None:
        """Make the due calls; callbacks get ``application``, and a rebalance's exception propagates.

        ``is_reading`` means that messages were taken that the application must get before a rebalance.
        """
        if self._running is not None:
            await self._ended()
        while (call := self._consumer._queue.next_call(is_reading=is_reading)) is not None:
            self._consumer._end_poll()
            try:
                if isinstance(call, Rebalance):
                    self._running = self._loop.create_task(
                        self._rebalance(application, call), name="consumer-rebalance"
                    )
                    await self._ended()
                else:
                    call(self._consumer)
            finally:
                self._consumer._begin_poll()

    async def _ended(self) -> None:
        task = self._running
        assert task is not None
        # Unlike `await task`, this does not cancel the task when the caller is cancelled.
        await asyncio.wait([task])
        self._running = None
        task.result()

    async def _rebalance(self, application: Any, rebalance: Rebalance) -> None:
        callback = rebalance.callback
        with rebalance.serving(self._consumer):
            if callback is not None:
                outcome = callback(application, rebalance.partitions)
                if inspect.isawaitable(outcome):
                    await outcome


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
