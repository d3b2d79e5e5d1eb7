"""The time in which a client's deadlines are."""

from __future__ import annotations

import asyncio


def now_ms() -> float:
    """Return the time of the running loop, in milliseconds."""
    return asyncio.get_running_loop().time() * 1000
