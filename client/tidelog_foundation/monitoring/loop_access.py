"""Access to an event loop from the threads of the monitoring port."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from tidelog_foundation.metrics import Family, Source
from tidelog_foundation.time_slices import TimeSlices

T = TypeVar("T")
_MAX_TASKS: Final = 2_000
_MAX_FRAMES: Final = 16
_SAMPLES_PER_S: Final = 100


class LoopBusyError(Exception):
    """The event loop has not answered in time."""


class LoopAccess:
    """An event loop for other threads. It is created on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()

    def call(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function on the loop, and return its result.

        Raises:
            LoopBusyError: The loop has not answered in time, or has ended.
        """

        async def call() -> T:
            return function()

        return self.run(call(), timeout_s)

    def collect(self, sources: Sequence[Source], timeout_s: float) -> list[Family]:
        """Read all sources on the loop, in time slices.

        Raises:
            LoopBusyError: The loop has not answered in time, or has ended.
        """
        return self.run(_collect(sources), timeout_s)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop, and return its result.

        Raises:
            LoopBusyError: It has not ended in time, or the loop has ended.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise LoopBusyError("the event loop has ended") from error
        try:
            return future.result(timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise LoopBusyError(f"the event loop has not answered in {timeout_s:g} s") from error
        except CancelledError as error:
            raise LoopBusyError("the event loop is ending") from error

    def tasks(self) -> str:
        """Return the line that the loop's thread is in, and the loop's tasks with the lines that they wait in."""
        lines = ["# The thread of the event loop\n", *traceback.format_list(_stack_of(self._thread))]
        for task in sorted(asyncio.all_tasks(self._loop), key=lambda task: task.get_name())[:_MAX_TASKS]:
            frames = task.get_stack(limit=_MAX_FRAMES)
            waits = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
            lines += [f"\n# Task {task.get_name()}\n", *traceback.format_list(waits)]
        return "".join(lines)

    def profile(self, duration_s: float) -> str:
        """Sample the loop's thread, and return collapsed stacks with their counts, as flame graph tools read them."""
        counts: dict[str, int] = {}
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            stack = ";".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in _stack_of(self._thread))
            counts[stack] = counts.get(stack, 0) + 1
            time.sleep(1 / _SAMPLES_PER_S)
        return "".join(f"{stack} {count}\n" for stack, count in sorted(counts.items()))


async def _collect(sources: Sequence[Source]) -> list[Family]:
    families: list[Family] = []
    slices = TimeSlices()
    for source in sources:
        families += [family async for family in slices.of(source()) if family is not None]
    return families


def _stack_of(thread: int) -> traceback.StackSummary:
    """Return the current stack of a thread, the outermost call first."""
    frame = sys._current_frames().get(thread)
    return traceback.extract_stack(frame) if frame is not None else traceback.StackSummary()
