"""Requests that wait: producers for the high watermark, readers for something new. Futures, never threads.

All of it lives on the event loop's thread. A deadline is its caller's business: whoever stops waiting, also by
cancellation, takes its entry out.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidelog.errors import TidelogError


class ProduceWaiters:
    """Producers of one partition, by the offset that the high watermark must reach; offsets only grow."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: int) -> asyncio.Future[None]:
        """Return a future that ends when everything below ``required_offset`` is on all in-sync replicas."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((required_offset, future))
        return future

    def complete(self, high_watermark: int, error: TidelogError | None) -> None:
        """Answer those at or below the high watermark: with success, or with ``error``."""
        while self._waiting and (self._waiting[0][0] <= high_watermark or self._waiting[0][1].done()):
            _settle(self._waiting.popleft()[1], error)

    def fail_all(self, error: TidelogError) -> None:
        """Answer everybody with ``error``."""
        while self._waiting:
            _settle(self._waiting.popleft()[1], error)


class ReadWaiter:
    """One fetch request that waits for any of its partitions; ``dirty`` are those to look at again."""

    __slots__ = ("_future", "dirty")

    def __init__(self) -> None:
        self.dirty: set[int] = set()
        self._future: asyncio.Future[None] | None = None

    def wake(self, position: int) -> None:
        """Say that the partition at ``position`` of the request has changed."""
        self.dirty.add(position)
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, timeout_s: float) -> bool:
        """Wait until something is dirty; returns whether it is."""
        if not self.dirty and timeout_s > 0:
            self._future = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._future,), timeout=timeout_s)
            self._future = None
        return bool(self.dirty)


class ReadWaiters:
    """The fetch requests that wait for one kind of change of one partition."""

    def __init__(self) -> None:
        self._waiting: set[tuple[ReadWaiter, int]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: ReadWaiter, position: int) -> None:
        """Wake ``waiter`` at each change until it is discarded."""
        self._waiting.add((waiter, position))

    def discard(self, waiter: ReadWaiter, position: int) -> None:
        """Wake it no more."""
        self._waiting.discard((waiter, position))

    def wake(self) -> None:
        """Tell everybody."""
        for waiter, position in self._waiting:
            waiter.wake(position)


def _settle(future: asyncio.Future[None], error: TidelogError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
