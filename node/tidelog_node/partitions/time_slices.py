"""Lets long work on the event loop give way to requests and heartbeats, by the time that it has taken."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
SLICE_S = 0.005


class TimeSlices:
    """Made at the start of the work; ``if slices.is_over: await slices.give_way()`` between two of its steps.

    Or ``async for item in slices.of(items)``, or ``await slices.result_of(steps)`` for a generator.
    """

    __slots__ = ("_end_s",)

    def __init__(self) -> None:
        self._end_s = time.perf_counter() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether others should have their turn."""
        return time.perf_counter() >= self._end_s

    async def give_way(self) -> None:
        """Let everything run that is ready, then begin the next slice."""
        await asyncio.sleep(0)
        self._end_s = time.perf_counter() + SLICE_S

    async def of(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items one by one; others have their turn in between."""
        for item in items:
            yield item
            if self.is_over:
                await self.give_way()

    async def result_of(self, steps: Generator[None, None, T]) -> T:
        """Take all steps of a generator, and return what it returns; others have their turn in between."""
        with contextlib.closing(steps):
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if self.is_over:
                    await self.give_way()
