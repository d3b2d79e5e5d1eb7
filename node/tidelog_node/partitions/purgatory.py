"""Waiting requests of a partition: producers and deletions wait for a watermark, readers for a change.

All state lives on the event loop's thread. Callers manage their own deadlines: a caller that stops waiting, also by
cancellation, removes its entry.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_node.event_loop import Pending
from tidelog_node.replication import LeaderState
from tidelog_node.replication.fetch_session import TopicRef


class OffsetWaiter(Protocol):
    """A request that waits for a watermark, such as a :class:`Pending`."""

    @property
    def is_settled(self) -> bool:
        """True if it waits no more."""

    def settle(self, value: None, /) -> None:
        """Answer the request, because the watermark has reached its offset."""

    def fail(self, error: TidelogError, /) -> None:
        """Answer the request with an error."""


class OffsetWaiters:
    """Requests that wait until a watermark of one partition reaches an offset.

    Producers wait for the high watermark, deletions for the low one. A duplicate batch waits for an earlier offset than
    the requests before it, so the order is that of the offsets, not of the calls.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, OffsetWaiter]] = []
        """The requests by offset and order, a heap; only this class changes it."""
        self._calls = itertools.count()

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, required_offset: int) -> Pending[None]:
        """Return a Pending that settles once the watermark reaches ``required_offset``."""
        pending: Pending[None] = Pending()
        self.put(required_offset, pending)
        return pending

    def put(self, required_offset: int, waiter: OffsetWaiter) -> None:
        """Let a waiter settle once the watermark reaches ``required_offset``."""
        heapq.heappush(self.waiting, (required_offset, next(self._calls), waiter))

    def complete(self, watermark: int, error: TidelogError | None = None) -> None:
        """Answer the requests at or below the watermark with success, or with ``error``."""
        waiting = self.waiting
        while waiting and (waiting[0][0] <= watermark or waiting[0][2].is_settled):
            _settle(heapq.heappop(waiting)[2], error)

    def fail_all(self, error: TidelogError) -> None:
        """Answer all requests with ``error``."""
        while self.waiting:
            _settle(self.waiting.pop()[2], error)


class PartitionListener(Protocol):
    """A repeated reader of partitions, which reads a partition again after a change."""

    def wake(self, topic: TopicRef, index: int) -> None:
        """Read the partition now, because it has something new."""

    def mark(self, topic: TopicRef, index: int) -> None:
        """Read the partition with the next fetch, because its state has changed."""


class PartitionListeners:
    """The readers that wait for one kind of change of a partition, each with its own name for the partition."""

    def __init__(self) -> None:
        self.waiting: set[tuple[PartitionListener, TopicRef, int]] = set()
        """The readers with their names for the partition; only this class changes it."""

    def __len__(self) -> int:
        return len(self.waiting)

    def add(self, reader: PartitionListener, topic: TopicRef, index: int) -> None:
        """Notify ``reader`` of each change until it is discarded."""
        self.waiting.add((reader, topic, index))

    def discard(self, reader: PartitionListener, topic: TopicRef, index: int) -> None:
        """Stop notifying a reader."""
        self.waiting.discard((reader, topic, index))

    def wake(self) -> None:
        """Tell all readers to read the partition now."""
        for reader, topic, index in self.waiting:
            reader.wake(topic, index)

    def mark(self) -> None:
        """Tell all readers to read the partition with their next fetch."""
        for reader, topic, index in self.waiting:
            reader.mark(topic, index)


class PartitionWaiters:
    """The waiting requests of one partition.

    ``producers`` wait for the high watermark, ``deletions`` for the low one. Followers wait for the ``log_end``,
    consumers for the ``high_watermark``.
    """

    def __init__(self) -> None:
        self.producers = OffsetWaiters()
        self.deletions = OffsetWaiters()
        self.log_end = PartitionListeners()
        self.high_watermark = PartitionListeners()

    def complete_producers(self, leader: LeaderState | None) -> None:
        """Answer the producers whose records are below the high watermark, with an error if the ISR is too small."""
        if leader is None or not len(self.producers):
            return
        try:
            leader.is_replicated(leader.high_watermark)
        except TidelogError as error:
            self.producers.complete(leader.high_watermark, error)
        else:
            self.producers.complete(leader.high_watermark, None)

    def complete_deletions(self, leader: LeaderState | None, log_start_offset: int) -> None:
        """Answer the deletions that every replica has applied; ``log_start_offset`` is the leader's own."""
        if leader is not None and len(self.deletions):
            self.deletions.complete(leader.low_watermark(log_start_offset))

    def fail(self, error: TidelogError) -> None:
        """Answer all requests that wait for an offset with ``error``."""
        self.producers.fail_all(error)
        self.deletions.fail_all(error)

    def wake_readers(self) -> None:
        """Tell all readers to read the partition now."""
        self.log_end.wake()
        self.high_watermark.wake()

    def mark_readers(self) -> None:
        """Tell all readers to read the partition with their next fetch."""
        self.log_end.mark()
        self.high_watermark.mark()


def _settle(waiter: OffsetWaiter, error: TidelogError | None) -> None:
    if waiter.is_settled:
        return
    if error is None:
        waiter.settle(None)
    else:
        waiter.fail(error)
