"""Requests that wait: producers and deletions for a watermark, readers for something new. Futures, never threads.

All of it lives on the event loop's thread. A deadline is its caller's business: whoever stops waiting, also by
cancellation, takes its entry out.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from tidelog.errors import TidelogError
from tidelog_node.replication import LeaderState


class OffsetWaiters:
    """Requests that wait until a watermark of one partition reaches an offset.

    Producers wait for the high watermark, deletions for the low one. A producer's batch that was there already
    waits for an earlier offset than those before it, so the order is that of the offsets, not of the calls.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._calls = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: int) -> asyncio.Future[None]:
        """Return a future that ends when the watermark is at ``required_offset`` or above."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (required_offset, next(self._calls), future))
        return future

    def complete(self, watermark: int, error: TidelogError | None = None) -> None:
        """Answer those at or below the watermark: with success, or with ``error``."""
        while self._waiting and (self._waiting[0][0] <= watermark or self._waiting[0][2].done()):
            _settle(heapq.heappop(self._waiting)[2], error)

    def fail_all(self, error: TidelogError) -> None:
        """Answer everybody with ``error``."""
        while self._waiting:
            _settle(self._waiting.pop()[2], error)


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


class PartitionWaiters:
    """Everybody who waits for something of one partition, by what it is.

    ``producers`` wait for the high watermark, ``deletions`` for the low one; who reads as a follower waits for the
    ``log_end``, who reads as a consumer for the ``high_watermark``.
    """

    def __init__(self) -> None:
        self.producers = OffsetWaiters()
        self.deletions = OffsetWaiters()
        self.log_end = ReadWaiters()
        self.high_watermark = ReadWaiters()

    def complete_producers(self, leader: LeaderState | None) -> None:
        """Answer the producers whose records are replicated, or have turned out to be on too few replicas."""
        if leader is None or not len(self.producers):
            return
        try:
            leader.is_replicated(leader.high_watermark)
        except TidelogError as error:
            self.producers.complete(leader.high_watermark, error)
        else:
            self.producers.complete(leader.high_watermark, None)

    def complete_deletions(self, leader: LeaderState | None, log_start_offset: int) -> None:
        """Answer the deletions that have reached every replica; ``log_start_offset`` is the leader's own."""
        if leader is not None and len(self.deletions):
            self.deletions.complete(leader.low_watermark(log_start_offset))

    def fail(self, error: TidelogError) -> None:
        """Answer who waits for an offset with ``error``."""
        self.producers.fail_all(error)
        self.deletions.fail_all(error)

    def wake_readers(self) -> None:
        """Let every reader look again."""
        self.log_end.wake()
        self.high_watermark.wake()


def _settle(future: asyncio.Future[None], error: TidelogError | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
