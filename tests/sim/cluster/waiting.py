"""What the simulated shell waits with in the place of futures: the product's own purgatory, called back instead."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from tidelog.errors import TidelogError
from tidelog_node.partitions.purgatory import OffsetWaiters, PartitionWaiters, Reader, ReadWaiters


class Promise:
    """As much of a future as the purgatory uses; ``then`` hears the error, None for success, once."""

    __slots__ = ("_is_done", "_outcome", "_then")

    def __init__(self) -> None:
        self._is_done = False
        self._outcome: TidelogError | None = None
        self._then: Callable[[TidelogError | None], None] | None = None

    def done(self) -> bool:
        """Whether there is an outcome."""
        return self._is_done

    def set_result(self, _result: None) -> None:
        """It has succeeded."""
        self._settle(None)

    def set_exception(self, error: TidelogError) -> None:
        """It has failed."""
        self._settle(error)

    def then(self, call: Callable[[TidelogError | None], None]) -> None:
        """Have the outcome told: now when there is one."""
        self._then = call
        if self._is_done:
            call(self._outcome)

    def _settle(self, outcome: TidelogError | None) -> None:
        self._is_done, self._outcome = True, outcome
        if self._then is not None:
            self._then(outcome)


class SimulatedOffsetWaiters(OffsetWaiters):
    """Waits of promises."""

    def add(self, required_offset: int) -> Any:
        promise = Promise()
        heapq.heappush(self._waiting, (required_offset, next(self._calls), promise))  # type: ignore[misc]
        return promise


class OrderedReadWaiters(ReadWaiters):
    """Wakes in the order in which they came, so that equal schedules give equal histories."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[Reader, str, int], None] = {}  # type: ignore[assignment]

    def add(self, reader: Reader, topic: str, index: int) -> None:
        self._waiting[reader, topic, index] = None

    def discard(self, reader: Reader, topic: str, index: int) -> None:
        self._waiting.pop((reader, topic, index), None)

    def wake(self) -> None:
        for reader, topic, index in list(self._waiting):
            reader.wake(topic, index)


class SimulatedWaiters(PartitionWaiters):
    """Everybody who waits for something of one partition."""

    def __init__(self) -> None:
        self.producers = SimulatedOffsetWaiters()
        self.deletions = SimulatedOffsetWaiters()
        self.log_end = OrderedReadWaiters()
        self.high_watermark = OrderedReadWaiters()
