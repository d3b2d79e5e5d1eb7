"""Gathers records into batches per partition and decides what is sent when, without I/O or a clock.

Rules:

1. Every record that :meth:`Accumulator.append` took is settled exactly once: acknowledged, refused, timed out or
   purged. Nothing else removes it.
2. At most one batch of a partition is in flight, and a failed one goes back to the head of its queue. So the
   log has a partition's records in the order of produce(), whatever is retried. Partitions do not wait for each other.
3. A batch is ready when it is full, when its first record is ``linger_ms`` old, when a flush is going on, or
   when it failed and its back-off is over.
4. An error that is retriable is retried until ``retries`` or the record's ``message_timeout_ms`` is used up,
   whichever is first. The time runs from produce(), in flight or not; an answer that comes later is ignored.
5. Records of a topic whose partitions are not known are held in order. When the cluster says for
   ``propagation_max_ms`` that a topic does not exist, its records are given up as _UNKNOWN_TOPIC.
6. A record counts against the queue limits until it is settled and its delivery report is served.
7. An answer that takes longer than ``overdue_ms`` makes the metadata be asked for, again and again. When it names
   another leader the batch is sent there, as after a failure, and what the silent node answers to the
   old attempt is ignored: a paused node holds up its partitions no longer than the cluster takes to replace it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.producer.core.batch import Batch, DeliveryCallback, HeldRecord, PartitionQueue
from tidelog.producer.core.events import (
    AskMetadata,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    Settle,
    TopicLearned,
    TopicRefused,
)
from tidelog.producer.core.limits import RECORD_OVERHEAD, AccumulatorLimits
from tidelog.producer.core.partitioner import TopicPartitioner
from tidelog.producer.core.requests import requests
from tidelog.records import RecordBatchBuilder

HEADER_OVERHEAD = 10


class Accumulator:
    """All records that are not settled. The caller serialises: the shell holds one lock around each method."""

    def __init__(
        self, limits: AccumulatorLimits, backoff_ms: Callable[[int], float], choose: Callable[[int], int]
    ) -> None:
        """``backoff_ms(attempt)`` is the wait after a failure, ``choose(n)`` a random number below n."""
        self._limits = limits
        self._backoff_ms = backoff_ms
        self._choose = choose
        self._topics: dict[str, TopicPartitioner] = {}
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._held: dict[str, deque[HeldRecord]] = {}
        self._refused_since_ms: dict[str, float] = {}
        self._in_flight: dict[int, PartitionQueue] = {}
        self._next_batch_id = 0
        self.count = 0
        self.payload_bytes = 0
        self.unserved = 0
        self.flushing = 0

    @property
    def topics(self) -> set[str]:
        """The topics that were produced to, whether they are known or not."""
        return {*self._topics, *self._held}

    def __len__(self) -> int:
        """Return the records that are not settled, and those whose report is not served."""
        return self.count + self.unserved

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        on_delivery: DeliveryCallback | None,
        now_ms: float,
    ) -> bool:
        """Take a record; returns whether :meth:`poll` is due or has a new timer. ``partition`` -1: the key decides.

        The caller has checked the types, and that timestamp and header names can be encoded. Nothing changes when it
        raises.

        Raises:
            BufferError: the queue is full.
            TidelogError: MESSAGE_TOO_LARGE; _UNKNOWN_PARTITION when the topic has no such partition; _INVALID_ARG for
                a topic's name that cannot be sent.
            TypeError: the topic's name is not text.
        """
        size = (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += sum(len(n.encode()) + len(c or b"") + HEADER_OVERHEAD for n, c in headers)
        self._limits.check(topic, size, self.count + self.unserved, self.payload_bytes)
        partitioner = self._topics.get(topic)
        record = HeldRecord(partition, key, value, headers, timestamp_ms, on_delivery, size, now_ms)
        if partitioner is None:
            _check_name(topic)
            is_first = topic not in self._held
            self._held.setdefault(topic, deque()).append(record)
        elif partition >= partitioner.count:
            raise _no_partition(topic, partition, partitioner.count)
        else:
            is_first = self._put(topic, partitioner, record)
        self.count += 1
        self.payload_bytes += size
        return is_first

    def poll(self, now_ms: float, leader_of: Callable[[str, int], int | None]) -> list[Command]:
        """Return what is due: records to give up, batches to send, topics to ask for.

        ``leader_of(topic, partition)`` is the node to send to, or None when it is not known.
        """
        commands: list[Command] = list(self._expire(now_ms))
        unknown = set(self._held)
        by_node: dict[int, list[Batch]] = {}
        for queue in self._queues.values():
            if not self._is_due(queue, now_ms):
                continue
            leader = leader_of(queue.topic, queue.partition)
            if leader is None or (queue.in_flight is not None and leader == queue.in_flight.sent_to):
                unknown.add(queue.topic)
                continue
            if queue.in_flight is not None:
                self._recall(queue, queue.in_flight, leader)
            by_node.setdefault(leader, []).append(self._launch(queue, leader, now_ms))
        commands += requests(by_node)
        if unknown:
            commands.append(AskMetadata(frozenset(unknown)))
        return commands

    def handle(self, event: Event, now_ms: float) -> list[Command]:
        """Take what happened and return what follows; the caller polls afterwards."""
        match event:
            case BatchAcknowledged():
                return self._acknowledge(event)
            case BatchFailed():
                return self._fail(event, now_ms)
            case TopicLearned():
                return self._learn(event)
            case TopicRefused():
                return self._refuse(event, now_ms)
            case _:
                assert_never(event)

    def purge(self, *, in_queue: bool, in_flight: bool) -> list[Command]:
        """Give up what waits (_PURGE_QUEUE) or is in flight (_PURGE_INFLIGHT; it may be stored all the same)."""
        commands: list[Command] = []
        if in_flight:
            for queue in list(self._in_flight.values()):
                assert queue.in_flight is not None
                error = error_for(ErrorCode._PURGE_INFLIGHT, f"{queue.topic}-{queue.partition}: purged in flight")
                commands.append(self._settle(self._land(queue), error))
        if in_queue:
            for topic in [*{q.topic for q in self._queues.values()}, *self._held]:
                error = error_for(ErrorCode._PURGE_QUEUE, f'records of topic "{topic}" were purged from the queue')
                commands += self._drop_topic(topic, error)
        return commands

    def next_timer_ms(self, now_ms: float) -> float | None:
        """Return when :meth:`poll` is next due by the clock; None when only an event can change anything.

        To be called after a poll at ``now_ms``: a batch that is still ready then has no known leader, and is due when
        its topic is learned, or when it times out.
        """
        timeout_ms = self._limits.message_timeout_ms
        due = [held[0].produced_ms + timeout_ms for held in self._held.values()]
        for queue in self._queues.values():
            oldest = queue.in_flight or queue.waiting[0]
            due.append(oldest.created_ms + timeout_ms)
            ready_ms = self._ready_at_ms(oldest) if queue.in_flight is None else self._overdue_at_ms(oldest)
            if ready_ms is not None and ready_ms > now_ms:
                due.append(ready_ms)
        return min(due, default=None)

    def check_invariants(self) -> None:
        """Assert that the counters agree with the queues and that each partition keeps its order."""
        batches = [b for q in self._queues.values() for b in (*([q.in_flight] if q.in_flight else []), *q.waiting)]
        held = [r for records in self._held.values() for r in records]
        assert self.count == sum(b.count for b in batches) + len(held)
        assert self.payload_bytes == sum(b.payload_bytes for b in batches) + sum(r.payload_bytes for r in held)
        assert set(self._in_flight) == {q.in_flight.batch_id for q in self._queues.values() if q.in_flight}
        assert all(self._held.values())
        for (topic, partition), queue in self._queues.items():
            assert (queue.topic, queue.partition) == (topic, partition)
            assert not queue.is_empty
            ids = [b.batch_id for b in (*([queue.in_flight] if queue.in_flight else []), *queue.waiting)]
            assert ids == sorted(ids), f"{topic}-{partition}: batches out of order: {ids}"
            assert all(b.closed for b in list(queue.waiting)[:-1])
            assert not self._held.get(topic), f"records of {topic} are held though its partitions are known"

    def _put(self, topic: str, partitioner: TopicPartitioner, record: HeldRecord) -> bool:
        partition = record.partition if record.partition >= 0 else partitioner.for_key(record.key)
        if partition < 0:
            batch = self._open_batch(topic, partitioner.sticky, record.payload_bytes)
            if batch is None:
                partitioner.next_sticky()
            partition = partitioner.sticky
        batch = self._open_batch(topic, partition, record.payload_bytes)
        is_new = batch is None
        if batch is None:
            batch = self._new_batch(topic, partition, record.produced_ms)
        relative_offset = batch.builder.append(record.key, record.value, record.headers, record.timestamp_ms)
        if record.on_delivery is not None:
            batch.deliveries.append(record.delivery(relative_offset))
        batch.payload_bytes += record.payload_bytes
        return is_new

    def _open_batch(self, topic: str, partition: int, size: int) -> Batch | None:
        queue = self._queues.get((topic, partition))
        batch = queue.open_batch if queue else None
        if batch is None or self._is_full(batch, size + RECORD_OVERHEAD):
            return None
        return batch

    def _is_full(self, batch: Batch, more: int = 0) -> bool:
        builder = batch.builder
        too_many = builder.count >= self._limits.batch_num_messages
        return too_many or builder.size_in_bytes + more > self._limits.batch_size

    def _new_batch(self, topic: str, partition: int, now_ms: float) -> Batch:
        queue = self._queues.setdefault((topic, partition), PartitionQueue(topic, partition))
        if queue.waiting:
            queue.waiting[-1].closed = True
        builder = RecordBatchBuilder(self._limits.compression, self._limits.compression_level)
        batch = Batch(self._next_batch_id, topic, partition, now_ms, builder)
        self._next_batch_id += 1
        queue.waiting.append(batch)
        return batch

    def _ready_at_ms(self, batch: Batch) -> float:
        if batch.closed or self.flushing or self._is_full(batch):
            return batch.not_before_ms
        return batch.created_ms + self._limits.linger_ms

    def _is_due(self, queue: PartitionQueue, now_ms: float) -> bool:
        if queue.in_flight is None:
            return self._ready_at_ms(queue.waiting[0]) <= now_ms
        overdue_ms = self._overdue_at_ms(queue.in_flight)
        return overdue_ms is not None and overdue_ms <= now_ms

    def _overdue_at_ms(self, batch: Batch) -> float | None:
        # Without a retry left there is nothing to do but to wait.
        return batch.sent_ms + self._limits.overdue_ms if batch.attempts < self._limits.retries else None

    def _recall(self, queue: PartitionQueue, batch: Batch, leader: int) -> None:
        name = f"{queue.topic}-{queue.partition}"
        text = f"{name}: node {batch.sent_to} did not answer, and node {leader} leads the partition now"
        batch.last_error = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        batch.attempts += 1
        del self._in_flight[batch.batch_id]
        queue.in_flight = None
        queue.waiting.appendleft(batch)

    def _launch(self, queue: PartitionQueue, leader: int, now_ms: float) -> Batch:
        batch = queue.waiting.popleft()
        batch.closed = True
        batch.sent_to = leader
        batch.sent_ms = now_ms
        queue.in_flight = batch
        self._in_flight[batch.batch_id] = queue
        return batch

    def _land(self, queue: PartitionQueue) -> Batch:
        batch = queue.in_flight
        assert batch is not None
        queue.in_flight = None
        del self._in_flight[batch.batch_id]
        if queue.is_empty:
            del self._queues[queue.topic, queue.partition]
        return batch

    def _awaiting(self, event: BatchAcknowledged | BatchFailed) -> PartitionQueue | None:
        queue = self._in_flight.get(event.batch_id)
        if queue is None or queue.in_flight is None or queue.in_flight.attempts != event.attempt:
            return None
        return queue

    def _acknowledge(self, event: BatchAcknowledged) -> list[Command]:
        queue = self._awaiting(event)
        if queue is None:
            return []
        return [self._settle(self._land(queue), None, event.base_offset, event.log_append_time_ms)]

    def _fail(self, event: BatchFailed, now_ms: float) -> list[Command]:
        queue = self._awaiting(event)
        if queue is None:
            return []
        batch = self._land(queue)
        batch.attempts += 1
        batch.last_error = event.error
        if not event.error.code.retriable or batch.attempts > self._limits.retries:
            return [self._settle(batch, event.error)]
        batch.not_before_ms = now_ms + (0 if event.leader_known else self._backoff_ms(batch.attempts))
        queue.waiting.appendleft(batch)
        self._queues[queue.topic, queue.partition] = queue
        ask = event.error.code.refresh_metadata and not event.leader_known
        return [AskMetadata(frozenset([batch.topic]))] if ask else []

    def _learn(self, event: TopicLearned) -> list[Command]:
        self._refused_since_ms.pop(event.topic, None)
        partitioner = self._topics.get(event.topic)
        if partitioner is None:
            partitioner = self._topics[event.topic] = TopicPartitioner(self._limits.partitioner, self._choose)
        partitioner.learn(event.count, event.available)
        commands: list[Command] = []
        for record in self._held.pop(event.topic, ()):
            if record.partition >= partitioner.count:
                error = _no_partition(event.topic, record.partition, partitioner.count)
                commands.append(self._settle_held(event.topic, record, error))
            else:
                self._put(event.topic, partitioner, record)
        return commands

    def _refuse(self, event: TopicRefused, now_ms: float) -> list[Command]:
        since_ms = self._refused_since_ms.setdefault(event.topic, now_ms)
        if not event.error.code.retriable:
            return self._drop_topic(event.topic, event.error)
        if event.error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return []
        if now_ms - since_ms < self._limits.propagation_max_ms:
            return []
        return self._drop_topic(event.topic, error_for(ErrorCode._UNKNOWN_TOPIC, event.error.message))

    def _drop_topic(self, topic: str, error: TidelogError) -> list[Command]:
        self._refused_since_ms.pop(topic, None)
        commands: list[Command] = [self._settle_held(topic, r, error) for r in self._held.pop(topic, ())]
        for queue in [q for q in self._queues.values() if q.topic == topic]:
            while queue.waiting:
                commands.append(self._settle(queue.waiting.popleft(), error))
            if queue.is_empty:
                del self._queues[queue.topic, queue.partition]
        return commands

    def _expire(self, now_ms: float) -> Iterator[Command]:
        oldest_ms = now_ms - self._limits.message_timeout_ms
        for topic, held in list(self._held.items()):
            while held and held[0].produced_ms <= oldest_ms:
                yield self._settle_held(topic, held.popleft(), _timed_out(topic, 1, self._limits, None))
            if not held:
                del self._held[topic]
        for queue in list(self._queues.values()):
            name = f"{queue.topic}-{queue.partition}"
            if queue.in_flight is not None and queue.in_flight.created_ms <= oldest_ms:
                batch = self._land(queue)
                yield self._settle(batch, _timed_out(name, batch.count, self._limits, batch.last_error))
            while queue.waiting and queue.in_flight is None and queue.waiting[0].created_ms <= oldest_ms:
                batch = queue.waiting.popleft()
                yield self._settle(batch, _timed_out(name, batch.count, self._limits, batch.last_error))
            if queue.is_empty:
                self._queues.pop((queue.topic, queue.partition), None)

    def _settle(
        self, batch: Batch, error: TidelogError | None, base_offset: int = -1, log_append_time_ms: int = -1
    ) -> Settle:
        count = batch.count
        self.count -= count
        self.payload_bytes -= batch.payload_bytes
        self.unserved += len(batch.deliveries)
        return Settle(batch.topic, batch.partition, count, batch.deliveries, error, base_offset, log_append_time_ms)

    def _settle_held(self, topic: str, record: HeldRecord, error: TidelogError) -> Settle:
        deliveries = [] if record.on_delivery is None else [record.delivery(0)]
        self.count -= 1
        self.payload_bytes -= record.payload_bytes
        self.unserved += len(deliveries)
        return Settle(topic, record.partition, 1, deliveries, error)


def _check_name(topic: str) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic must be text, not {type(topic).__name__}")
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        raise error_for(ErrorCode._INVALID_ARG, f"topic {topic!r} is not valid: {error}") from error
    if not topic:
        raise error_for(ErrorCode._INVALID_ARG, 'topic "" is not valid: it is empty')


def _no_partition(topic: str, partition: int, count: int) -> TidelogError:
    return error_for(ErrorCode._UNKNOWN_PARTITION, f'topic "{topic}" has no partition {partition}, it has {count}')


def _timed_out(name: str, count: int, limits: AccumulatorLimits, last_error: TidelogError | None) -> TidelogError:
    reason = f"; the last error was {last_error}" if last_error else ""
    text = f"{name}: {count} records were not acknowledged within {limits.message_timeout_ms:g} ms{reason}"
    return error_for(ErrorCode._MSG_TIMED_OUT, text)
