"""Lets long work on the event loop give way to requests and heartbeats, by the time that it has taken."""

from __future__ import annotations

import asyncio
import time

SLICE_S = 0.005


class TimeSlices:
    """Made at the start of the work; ``if slices.is_over: await slices.give_way()`` between two of its steps."""

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
