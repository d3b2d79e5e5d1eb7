"""A bound on the bytes of requests that a node works on at the same time."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """Takers are served in order; one that wants more than there is at all gets it when nobody else has anything."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """The bytes that are out."""
        return self._taken

    async def take(self, size: int) -> None:
        """Wait until ``size`` bytes are free and take them; to be given back with :meth:`give_back`."""
        if not self._waiting and self._fits(size):
            self._taken += size
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        """Return what was taken and let others go on."""
        self._taken -= size
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            wanted, future = self._waiting.popleft()
            if not future.done():
                self._taken += wanted
                future.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._taken == 0 or self._taken + size <= self._limit
