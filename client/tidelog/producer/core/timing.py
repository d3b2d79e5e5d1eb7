"""The times at which a batch is ready to send and an answer is overdue. Part of the accumulator."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.partition_queue import PartitionQueue


class Timing:
    """The accumulator's rules 3 and 7. ``flushing`` is the number of flushes in progress."""

    def __init__(self, limits: AccumulatorLimits) -> None:
        self._limits = limits

    def ready_at_ms(self, batch: Batch, flushing: int, leader: int | None = None) -> float:
        """Return the time from which a batch may be sent, to ``leader`` if known."""
        if batch.failures and leader is not None and leader != batch.sent_to:
            return batch.sent_ms
        if batch.closed or flushing or self._limits.is_full(batch.builder):
            return batch.not_before_ms
        return batch.created_ms + self._limits.linger_ms

    def is_silent(self, queue: PartitionQueue, now_ms: float) -> bool:
        """Return True if an answer is overdue."""
        overdue_ms = self._overdue_at_ms(queue)
        return overdue_ms is not None and overdue_ms <= now_ms

    def is_due(self, queue: PartitionQueue, flushing: int, leader: int | None, now_ms: float) -> bool:
        """Return True if there is a batch to send or metadata to request."""
        upcoming = queue.upcoming()
        is_ready = upcoming is not None and self.ready_at_ms(upcoming, flushing, leader) <= now_ms
        return is_ready or self.is_silent(queue, now_ms)

    def timers_ms(self, queue: PartitionQueue, flushing: int, now_ms: float) -> Iterator[float]:
        """Yield the next due times: a batch to expire or, after now, one to send or to inquire about."""
        yield queue.oldest.created_ms + self._limits.message_timeout_ms
        upcoming = queue.upcoming()
        ready_ms = None if upcoming is None else self.ready_at_ms(upcoming, flushing)
        for at_ms in (ready_ms, self._overdue_at_ms(queue)):
            if at_ms is not None and at_ms > now_ms:
                yield at_ms

    def _overdue_at_ms(self, queue: PartitionQueue) -> float | None:
        batch = queue.longest_in_flight
        # Without a retry left, only waiting remains.
        if batch is None or batch.failures >= self._limits.retries:
            return None
        return batch.sent_ms + self._limits.overdue_ms
