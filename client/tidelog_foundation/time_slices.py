"""Time slices, in which long work on the event loop yields to requests and heartbeats.

All long work of an event loop takes turns: one slice in each pass of the loop, however many tasks have more to do.
Otherwise fifty tasks, each with slices of 5 ms, would keep a heartbeat waiting for 250 ms at each of its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
SLICE_S = 0.005


class TimeSlices:
    """Time slices of one piece of work, from its start.

    Between two steps, write ``if slices.is_over: await slices.give_way()``. For a loop, use ``async for item in
    slices.of(items)``; for a generator, ``await slices.result_of(steps)``.
    """

    __slots__ = ("_end_s",)

    def __init__(self) -> None:
        self._end_s = time.perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """True once the slice has ended and other tasks should run."""
        return time.perf_counter() >= self._end_s

    async def give_way(self) -> None:
        """Let all ready tasks run, then begin the next slice when it is this work's turn."""
        turns = _turns_of_loop()
        await (asyncio.sleep(0) if turns is None else turns.next())
        self._end_s = time.perf_counter() + SLICE_S

    async def of(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items one by one; other tasks run between slices."""
        for item in items:
            yield item
            if self.is_over:
                await self.give_way()

    async def result_of(self, steps: Generator[None, None, T]) -> T:
        """Run a generator to its end and return its result; other tasks run between slices."""
        with contextlib.closing(steps):
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if self.is_over:
                    await self.give_way()


def result_at_once(steps: Generator[None, None, T]) -> T:
    """Run a generator to its end without a pause, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class _Turns:
    """The work that waits for its next slice on one event loop, in order. Each pass of the loop wakes one."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def next(self) -> None:
        """Wait for the caller's turn, for at least one pass of the loop."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._wake_one)
        await turn

    def _wake_one(self) -> None:
        """Wake the first work that was not cancelled. The next one follows in the next pass of the loop, behind it."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._wake_one)


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns] = WeakKeyDictionary()


def _turns_of_loop() -> _Turns | None:
    """Return the turns of the running event loop; None in simulated time, which runs one work to its end."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return _TURNS.setdefault(loop, _Turns())
