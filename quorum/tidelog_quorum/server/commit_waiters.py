"""Who waits for offsets of the metadata log to be committed, and how much is written that is not."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable


class CommitWaiters:
    """On the event loop. Each change of leadership ends all waits."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._calls = itertools.count()

    async def wait(self, offset: int) -> None:
        """Wait until ``offset`` is committed; raises what :meth:`fail` is given."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (offset, next(self._calls), future))
        await future

    def release(self, committed: int) -> None:
        """End the waits for offsets up to ``committed``."""
        while self._waiting and (self._waiting[0][0] <= committed or self._waiting[0][2].done()):
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Callable[[], Exception]) -> None:
        """End all waits with an error of their own each."""
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(error())
        self._waiting.clear()


class Backlog:
    """The entries that a leader wrote and that are not committed: bounded, so that a slow quorum slows its users down.

    What is written while there is room is written whole, so a backlog may be larger by one entry.
    """

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._sizes: deque[tuple[int, int]] = deque()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the next entry must wait."""
        return len(self._sizes) >= self._max_entries or self._bytes >= self._max_bytes

    @property
    def first_offset(self) -> int:
        """The offset whose commit makes room; only when there is an entry."""
        return self._sizes[0][0]

    def add(self, offset: int, size: int) -> None:
        """Note an entry that was written."""
        self._sizes.append((offset, size))
        self._bytes += size

    def release(self, committed: int) -> None:
        """Note what is committed."""
        while self._sizes and self._sizes[0][0] <= committed:
            self._bytes -= self._sizes.popleft()[1]

    def clear(self) -> None:
        """Forget all: the leadership has ended."""
        self._sizes.clear()
        self._bytes = 0
