"""Requests that wait: producers and deletions for a watermark, readers for something new. Never threads.

All of it lives on the event loop's thread. A deadline is its caller's business: whoever stops waiting, also by
cancellation, takes its entry out.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Protocol

from tidelog_foundation.errors import TidelogError
from tidelog_node.partitions.pending import Pending
from tidelog_node.replication import LeaderState
from tidelog_node.replication.fetch_session import TopicRef


class OffsetWaiters:
    """Requests that wait until a watermark of one partition reaches an offset.

    Producers wait for the high watermark, deletions for the low one. A producer's batch that was there already
    waits for an earlier offset than those before it, so the order is that of the offsets, not of the calls.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Pending[None]]] = []
        self._calls = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, required_offset: int) -> Pending[None]:
        """Return what is settled when the watermark is at ``required_offset`` or above."""
        pending: Pending[None] = Pending()
        heapq.heappush(self._waiting, (required_offset, next(self._calls), pending))
        return pending

    def complete(self, watermark: int, error: TidelogError | None = None) -> None:
        """Answer those at or below the watermark: with success, or with ``error``."""
        while self._waiting and (self._waiting[0][0] <= watermark or self._waiting[0][2].is_settled):
            _settle(heapq.heappop(self._waiting)[2], error)

    def fail_all(self, error: TidelogError) -> None:
        """Answer everybody with ``error``."""
        while self._waiting:
            _settle(self._waiting.pop()[2], error)


class Reader(Protocol):
    """Who reads partitions again and again, and has to look at one when it has changed."""

    def wake(self, topic: TopicRef, index: int) -> None:
        """The partition has something new: look at it now."""
        ...

    def mark(self, topic: TopicRef, index: int) -> None:
        """Something about the partition is different: look at it with the next fetch."""
        ...


class ReadWaiters:
    """The readers that care for one kind of change of one partition, each with what it calls the partition."""

    def __init__(self) -> None:
        self._waiting: set[tuple[Reader, TopicRef, int]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reader: Reader, topic: TopicRef, index: int) -> None:
        """Tell ``reader`` of each change until it is discarded."""
        self._waiting.add((reader, topic, index))

    def discard(self, reader: Reader, topic: TopicRef, index: int) -> None:
        """Tell it no more."""
        self._waiting.discard((reader, topic, index))

    def wake(self) -> None:
        """Tell everybody to look now."""
        for reader, topic, index in self._waiting:
            reader.wake(topic, index)

    def mark(self) -> None:
        """Tell everybody to look with the next fetch."""
        for reader, topic, index in self._waiting:
            reader.mark(topic, index)


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

    def mark_readers(self) -> None:
        """Let every reader look again with its next fetch."""
        self.log_end.mark()
        self.high_watermark.mark()


def _settle(pending: Pending[None], error: TidelogError | None) -> None:
    if pending.is_settled:
        return
    if error is None:
        pending.settle(None)
    else:
        pending.fail(error)
