"""The process's one network thread: a daemon thread that runs the event loop of all client gRPC.

grpc.aio has one poller per process and does not support several event loops, so every producer, consumer, admin client
and Spark reader of a process shares this loop. Their public methods block the caller's thread; they reach the loop
through :func:`run_sync` or ``loop.call_soon_threadsafe``.

The thread starts on first use. A child created by ``fork`` drops its parent's loop and starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from tidelog_foundation.errors import ErrorCode, error_for

T = TypeVar("T")

_STOP_WAIT_S = 2.0


class _NetworkThread:
    """The loop and its thread, from the first use to the end of the process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: threading.Thread | None = None

    def ensure_loop(self) -> asyncio.AbstractEventLoop:
        with self.lock:
            if self.loop is None:
                self.loop = _new_event_loop()
                self.thread = threading.Thread(
                    target=_run_forever, args=(self.loop,), name="tidelog-network", daemon=True
                )
                self.thread.start()
            return self.loop

    def stop(self) -> None:
        with self.lock:
            loop, thread = self.loop, self.thread
            self.loop = self.thread = None
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            thread.join(_STOP_WAIT_S)


def network_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, and start its thread on the first call; uvloop is used if installed."""
    return _network.ensure_loop()


def has_network_loop() -> bool:
    """Return True if the loop was started in this process; never starts it."""
    return _network.loop is not None


def run_sync(coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    """Run ``coroutine`` on the network thread and wait for its result; cancel it if the wait ends early.

    Raises:
        TidelogError: _TIMED_OUT after ``timeout_s`` seconds; _STATE on the network thread itself, which would wait for
            itself; any error of the coroutine.
    """
    loop = network_loop()
    if threading.current_thread() is _network.thread:
        coroutine.close()
        raise error_for(ErrorCode._STATE, "a blocking call was made on the network thread")
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result(timeout_s)
    except concurrent.futures.TimeoutError as error:
        if future.done() and not future.cancelled():
            raise
        raise error_for(ErrorCode._TIMED_OUT, f"no result within {timeout_s} seconds") from error
    finally:
        future.cancel()


async def run_on_network(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run ``coroutine`` on the network thread without blocking the caller's loop; the caller's
    cancellation cancels it.
    """
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, network_loop()))


def call_soon(callback: Callable[[], object]) -> None:
    """Run ``callback`` on the network thread soon. Thread-safe."""
    network_loop().call_soon_threadsafe(callback)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


def _forget_after_fork() -> None:
    global _network
    _network = _NetworkThread()


_network = _NetworkThread()
atexit.register(lambda: _network.stop())
os.register_at_fork(after_in_child=_forget_after_fork)


logger = logging.getLogger("tidelog.transport")


def monotonic_ms() -> float:
    """Return the time for the clients' cores, in milliseconds."""
    return time.monotonic() * 1000


async def step_when_due(step: Callable[[], float | None], awake: asyncio.Event, retry_ms: int, name: str) -> NoReturn:
    """Call ``step`` at once, then whenever ``awake`` is set or its returned time has come (None: no timer).

    A step that raises is logged under ``name`` and repeated after ``retry_ms``. Runs until cancelled.
    """
    while True:
        awake.clear()
        try:
            timer_ms = step()
        except Exception:
            logger.exception("%s failed; retrying", name)
            timer_ms = monotonic_ms() + retry_ms
        timeout_s = None if timer_ms is None else max(timer_ms - monotonic_ms(), 0) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await awake.wait()
