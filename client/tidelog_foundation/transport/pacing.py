"""The loop that drives a client's pure core: it runs a step after a wake-up or when a timer is due."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NoReturn

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
