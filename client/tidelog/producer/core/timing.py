"""The times at which a batch is ready and an answer is overdue, and the obstacles that delay acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.partition_queue import PartitionQueue


class Timing:
    """The due times of batches and requests (rules 3 and 7 of :mod:`.accumulator`).

    ``flushing`` is the number of flushes in progress.
    """

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


LeaderOf = Callable[[str, int], int | None]


def hindrances(
    queues: Iterable[PartitionQueue], unknown_topics: Iterable[str], leader_of: LeaderOf
) -> Mapping[Hashable, str]:
    """Return the obstacle of each partition's oldest batch, by its id; batches that only wait their turn have none.

    Records of unknown topics are in no batch; their key is the topic's name.
    """
    oldest = (queue.oldest for queue in queues if not queue.is_empty)
    found: dict[Hashable, str] = {batch.batch_id: _hindrance(batch, leader_of) for batch in oldest}
    unknown = {name: f'the cluster has not said that there is a topic "{name}"' for name in unknown_topics}
    return {key: reason for key, reason in (*found.items(), *unknown.items()) if reason}


def _hindrance(batch: Batch, leader_of: LeaderOf) -> str:
    name = f"{batch.topic}-{batch.partition}"
    if batch.last_error is not None:
        return f"{name}: {batch.last_error}"
    if batch.in_flight:
        return f"{name}: node {batch.sent_to} has not answered"
    return f"{name} has no leader" if leader_of(batch.topic, batch.partition) is None else ""
