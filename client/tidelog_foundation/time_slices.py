"""Time slices, in which long work on the event loop yields to requests and heartbeats."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

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
        """Let all ready tasks run, then begin the next slice."""
        await asyncio.sleep(0)
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
