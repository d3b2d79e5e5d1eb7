"""The processes in which Spark runs tasks."""

from __future__ import annotations

from functools import cache

from tidelog_foundation.allocator import keep_freed_memory

_MOST_FREE_BYTES = 64 * 1024 * 1024
"""Above the size of all copies of two fetches: one is received while the other is decoded."""


@cache
def prepare_worker() -> None:
    """Set the allocator of this process, once, for the records that it will move."""
    keep_freed_memory(_MOST_FREE_BYTES)
