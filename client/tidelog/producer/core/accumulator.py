"""The accumulation of records in batches per partition, and the decisions to send them, without I/O or a clock.

Rules:

1. Every record accepted by :meth:`Accumulator.append` is settled exactly once: acknowledged, refused, timed out or
   purged. Nothing else removes it.
2. The log has a partition's records in the order of produce(), regardless of retries, and they are settled in that
   order unless they are purged. :mod:`.partition_queue` describes this, and how no record is stored twice. Partitions
   do not wait for each other.
3. A batch is ready when it is full, when its first record is ``linger_ms`` old, during a flush, when the back-off after
   its failure is over, or when another node leads than the one that got the last attempt (KIP-951).
4. Retriable errors are retried until ``retries`` or the record's ``message_timeout_ms`` is used up, whichever comes
   first. The time starts at produce() and includes time in flight; a later answer is ignored.
5. Records of a topic with unknown partitions are kept in order. If the cluster denies for ``propagation_max_ms`` that
   the topic exists, its records fail with _UNKNOWN_TOPIC.
6. A record counts toward the queue limits until it is settled and its delivery report is served.
7. An answer that takes longer than ``overdue_ms`` triggers metadata requests until it arrives. If the metadata names
   another leader, the batches in flight go there, as after a failure, and the silent node's answers to the old attempts
   are ignored. A paused node thus delays its partitions only until the cluster replaces it.
8. An idempotent producer sends nothing without a producer id. If the cluster refuses one permanently, that is fatal:
   all records fail with that error, and no more are accepted.
9. A transactional producer accepts records in a transaction only, and sends them with its producer and epoch
   (:mod:`.transaction_scope`).

Guarantees for a record of an idempotent producer with acks=all, as long as every elected leader has all committed
records. Acknowledged: the log contains it exactly once, after all acknowledged records that were produced earlier.
Failed and not ``may_be_stored``: no log contains it or ever will. Failed and ``may_be_stored``: the log contains it at
most once, now or later, in order and never after records that are acknowledged later. (Only the order can break, if
32,768 epochs of a partition are used up at that moment, because a new producer id fences nothing.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from tidelog.producer.core.appender import Appender
from tidelog.producer.core.batch import Batch, DeliveryCallback, Outcome, PendingRecord, Rows
from tidelog.producer.core.events import (
    AskMetadata,
    AskProducerId,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    ProducerIdLearned,
    ProducerRefused,
    Settle,
    TopicLearned,
    TopicRefused,
    requests_to,
    settle_batch,
    settle_pending,
)
from tidelog.producer.core.faults import fatal_error, silent_node, timed_out
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog.producer.core.partition_queue import TOO_LARGE, Identity, PartitionQueue
from tidelog.producer.core.partitioner import TopicPartitioner
from tidelog.producer.core.pending import PendingRecords
from tidelog.producer.core.timing import Timing, hindrances
from tidelog.producer.core.transaction_scope import TransactionScope
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchBuilder


class Accumulator:
    """All unsettled records. Not thread-safe: the shell holds a lock around each call."""

    def __init__(
        self, limits: AccumulatorLimits, backoff_ms: Callable[[int], float], choose: Callable[[int], int]
    ) -> None:
        """Create an accumulator. ``backoff_ms(attempt)`` is the wait after a failure, ``choose(n)`` a random number
        below n.
        """
        self._limits = limits
        self._timing = Timing(limits)
        self._backoff_ms = backoff_ms
        self._choose = choose
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._pending = PendingRecords()
        self._sent: dict[int, PartitionQueue] = {}
        self._identity = Identity(
            limits.max_in_flight, idempotent=limits.idempotent, transactional=limits.transactional
        )
        self._appender = Appender(limits, self._queues, self._pending, self._identity)
        self.intake = self._appender.intake
        self.scope = TransactionScope() if limits.transactional else None
        """The open transaction, None if the producer is not transactional."""
        self.flushing = 0
        self.awaited: dict[str, TidelogError | None] = {}
        """Topics whose partitions a caller awaits, with the error that ended the wait."""
        self.fatal_error: TidelogError | None = None
        """The fatal error that ended the producer, if any."""
        self.connection_error: TidelogError | None = None
        """The latest failure of a connection since the cluster has answered, the reason of later timeouts."""

    @property
    def wants_producer_id(self) -> bool:
        """True if records wait for a producer id."""
        is_own = self.scope is None and self._identity.is_missing
        return is_own and self.fatal_error is None and self.count > 0

    @property
    def has_gap(self) -> bool:
        """True if the producer of transactions needs another epoch before it sends anything more."""
        return self._identity.has_gap

    @property
    def topics(self) -> set[str]:
        """The topics of all produced records, including topics whose partitions are unknown."""
        return {*self.intake.topics, *self._pending.topics}

    @property
    def count(self) -> int:
        """The number of unsettled records."""
        return self.intake.count

    @property
    def payload_bytes(self) -> int:
        """The bytes of their keys, values and headers."""
        return self.intake.payload_bytes

    @property
    def unserved(self) -> int:
        """The number of settled records with a pending delivery report."""
        return self.intake.unserved

    @unserved.setter
    def unserved(self, count: int) -> None:
        self.intake.unserved = count

    def __len__(self) -> int:
        """Return the number of unsettled records plus that of pending reports."""
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
        """Accept a record; return True if :meth:`poll` is due or has a new timer. ``partition`` -1 chooses by key.

        The caller has checked the types, and that timestamp and header names can be encoded. A call that raises changes
        nothing.

        Raises:
            BufferError: the queue is full.
            TidelogError: MESSAGE_TOO_LARGE; _UNKNOWN_PARTITION if the topic has no such partition; _INVALID_ARG for an
                invalid topic name; _FATAL after a fatal error; the scope's refusal without an open transaction.
            TypeError: the topic's name is not text.
        """
        self._check_open()
        return self._appender.append(topic, partition, key, value, headers, timestamp_ms, on_delivery, now_ms)

    def recount(self) -> None:
        """Restore consistency after Ctrl-C inside :meth:`append`; the record is either accepted or not."""
        self._appender.recount()

    def append_batch(
        self, topic: str, partition: int, builder: RecordBatchBuilder, payload_bytes: int, rows: Rows, now_ms: float
    ) -> None:
        """Accept a whole batch after all earlier records; :meth:`poll` is then due.

        The caller has checked that there is room and that the partition exists.

        Raises:
            TidelogError: _FATAL after a fatal error; the scope's refusal without an open transaction.
        """
        self._check_open()
        self._appender.append_batch(topic, partition, builder, payload_bytes, rows, now_ms)

    def has_room(self, count: int, payload_bytes: int) -> bool:
        """Return True if the records fit beside the others; an empty queue accepts any number."""
        return not len(self) or self._limits.has_room(count, payload_bytes, len(self), self.payload_bytes)

    def partitioner(self, topic: str) -> TopicPartitioner | None:
        """Return a topic's partitioner, or None while its partitions are unknown."""
        lanes = self.intake.topics.get(topic)
        return lanes if isinstance(lanes, TopicPartitioner) else None

    def queue(self, topic: str, partition: int) -> PartitionQueue | None:
        """Return a partition's batches, or None if there are none."""
        return self._queues.get((topic, partition))

    def poll(self, now_ms: float, leader_of: Callable[[str, int], int | None]) -> list[Command]:
        """Return the due commands: expired records, batches to send, and metadata requests.

        ``leader_of(topic, partition)`` is the leader's node id, or None if unknown.
        """
        commands: list[Command] = list(self._expire(now_ms))
        unknown = self._pending.topics | {topic for topic, error in self.awaited.items() if error is None}
        by_node: dict[int, list[list[Batch]]] = {}
        for queue in self._queues.values():
            leader = leader_of(queue.topic, queue.partition)
            if not self._timing.is_due(queue, self.flushing, leader, now_ms):
                continue
            if self.scope is not None and not self.scope.may_send((queue.topic, queue.partition)):
                continue
            if leader is None or self._is_still_silent(queue, leader, now_ms):
                unknown.add(queue.topic)
            elif batches := list(self._launch(queue, leader, now_ms)):
                by_node.setdefault(leader, []).append(batches)
        version = 0 if self.scope is None else self.scope.version
        commands += [send for node, batches in by_node.items() for send in requests_to(node, batches, version)]
        if unknown:
            commands.append(AskMetadata(frozenset(unknown)))
        if self.wants_producer_id:
            commands.append(AskProducerId())
        return commands

    def handle(self, event: Event, now_ms: float) -> list[Command]:
        """Apply an event and return its commands; the caller then polls."""
        match event:
            case BatchAcknowledged():
                return self._acknowledge(event, now_ms)
            case BatchFailed():
                return self._fail(event, now_ms)
            case TopicLearned():
                return self._learn(event)
            case TopicRefused():
                return self._refuse(event, now_ms)
            case ProducerIdLearned():
                self._identity.fresh = ProducerIdAndEpoch(event.producer_id, event.epoch)
                return []
            case ProducerRefused():
                return self.end(event.error)
            case _:
                assert_never(event)

    def hindrances(self, leader_of: Callable[[str, int], int | None]) -> Mapping[Hashable, str]:
        """Return the obstacles that delay records, by a key per partition."""
        unknown = self._pending.topics | {topic for topic, error in self.awaited.items() if error is None}
        return hindrances(self._queues.values(), unknown, leader_of)

    def purge(self, *, in_queue: bool, in_flight: bool) -> list[Command]:
        """Discard waiting records (_PURGE_QUEUE) or sent ones (_PURGE_INFLIGHT), which may still be stored."""
        commands: list[Command] = []
        if in_flight:
            for queue in list(self._queues.values()):
                error = error_for(ErrorCode._PURGE_INFLIGHT, f"{queue.topic}-{queue.partition}: purged in flight")
                commands += self._give_up(queue, (b for b in queue.sent if b.in_flight or b.may_be_stored), error)
        if in_queue:
            for topic in self._waiting_topics():
                error = error_for(ErrorCode._PURGE_QUEUE, f'records of topic "{topic}" were purged from the queue')
                commands += self._drop_topic(topic, error)
        return commands

    def begin_transaction(self, producer: ProducerIdAndEpoch, version: int) -> None:
        """Accept and send records in a transaction of a producer. No record is unsettled."""
        assert self.scope is not None
        assert not self.count
        self._identity.fresh = producer
        self.scope.open(producer, version)

    def refuse_records(self, refusal: TidelogError) -> None:
        """Refuse new records, because the transaction ends or has failed."""
        assert self.scope is not None
        self.scope.refusal = refusal
        for queue in self._queues.values():
            if queue.open_batch is not None:
                self._appender.close(queue.open_batch)

    def end(self, cause: TidelogError) -> list[Command]:
        """End the producer with a fatal error: fail all records and accept no more."""
        self.fatal_error = fatal_error(cause.code, cause.message)
        commands: list[Command] = []
        for topic in self._waiting_topics():
            commands += self._drop_topic(topic, self.fatal_error)
        return commands

    def next_timer_ms(self, now_ms: float) -> float | None:
        """Return the time of the next :meth:`poll`; None if only an event can change anything.

        Call it after a poll at ``now_ms``. A batch that is still ready then has no known leader; it is due when its
        topic's metadata arrives, or at its timeout.
        """
        timeout_ms = self._limits.message_timeout_ms
        due = [produced_ms + timeout_ms for produced_ms in self._pending.oldest_ms()]
        for queue in self._queues.values():
            due += self._timing.timers_ms(queue, self.flushing, now_ms)
        return min(due, default=None)

    def check_invariants(self) -> None:
        """Assert that the counters match the queues and that each partition keeps its order."""
        batches = [b for q in self._queues.values() for b in (*q.sent, *q.waiting)]
        self._appender.check_invariants()
        assert all(self._sent[b.batch_id] is q for q in self._queues.values() for b in q.sent)
        assert set(self._sent) <= {b.batch_id for b in batches}
        self._pending.check_invariants()
        for (topic, partition), queue in self._queues.items():
            assert (queue.topic, queue.partition) == (topic, partition)
            assert not queue.is_empty
            queue.check_invariants()
            assert topic not in self._pending.topics, f"records of {topic} are pending though its partitions are known"

    def _is_still_silent(self, queue: PartitionQueue, leader: int, now_ms: float) -> bool:
        """Return True if the current leader's answer is overdue; recall attempts sent to another node."""
        batch = queue.longest_in_flight
        if batch is None or not self._timing.is_silent(queue, now_ms):
            return False
        if batch.sent_to == leader:
            return True
        queue.recall(silent_node(batch, leader))
        return False

    def _launch(self, queue: PartitionQueue, leader: int, now_ms: float) -> Iterator[Batch]:
        while (batch := queue.upcoming()) is not None:
            if self._timing.ready_at_ms(batch, self.flushing, leader) > now_ms:
                return
            if not queue.may_send(batch, leader, now_ms) or not self._identity.suffices(queue, batch):
                return
            queue.launch(batch, leader, now_ms, self._identity.fresh)
            if self.scope is not None:
                self.scope.has_sent = True
            self._sent[batch.batch_id] = queue
            self._appender.close(batch)
            yield batch

    def _awaiting(self, event: BatchAcknowledged | BatchFailed) -> tuple[PartitionQueue, Batch] | None:
        queue = self._sent.get(event.batch_id)
        batch = None if queue is None else queue.awaiting(event.batch_id, event.attempt)
        return None if queue is None or batch is None else (queue, batch)

    def _acknowledge(self, event: BatchAcknowledged, now_ms: float) -> list[Command]:
        found = self._awaiting(event)
        if found is None:
            return []
        queue, batch = found
        queue.acknowledge(batch, Outcome(None, event.base_offset, event.log_append_time_ms), now_ms)
        return self._drain(queue)

    def _fail(self, event: BatchFailed, now_ms: float) -> list[Command]:
        found = self._awaiting(event)
        if found is None:
            return []
        queue, batch = found
        error = event.error
        if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER and queue.numbering is not None:
            # The log contains it, even if the leader no longer knows its offset.
            queue.acknowledge(batch, Outcome(None), now_ms)
            return self._drain(queue)
        if error.code in TOO_LARGE and event.is_refused and batch.may_be_split:
            if queue.split(batch, error) and batch not in queue.sent:
                del self._sent[batch.batch_id]
            return self._drain(queue)
        is_retried = queue.fail(batch, error, is_refused=event.is_refused, retries=self._limits.retries)
        if is_retried:
            waits = batch.failures > 0 and not event.leader_known and not batch.goes_alone
            batch.not_before_ms = now_ms + (self._backoff_ms(batch.failures) if waits else 0)
        # A leader cut off from the other replicas may be the last to learn of a new leader.
        may_have_moved = error.code.refresh_metadata or error.code is ErrorCode.REQUEST_TIMED_OUT
        ask = is_retried and may_have_moved and not event.leader_known
        return [*self._drain(queue), *([AskMetadata(frozenset([batch.topic]))] if ask else [])]

    def _drain(self, queue: PartitionQueue) -> list[Command]:
        commands: list[Command] = [self._settle(batch) for batch in queue.drain()]
        if queue.is_empty:
            self._queues.pop((queue.topic, queue.partition), None)
        return commands

    def _give_up(self, queue: PartitionQueue, batches: Iterable[Batch], error: TidelogError) -> list[Command]:
        for batch in [b for b in batches if b.outcome is None]:
            queue.give_up(batch, error)
        return self._drain(queue)

    def _check_open(self) -> None:
        if self.fatal_error is not None:
            raise fatal_error(ErrorCode._FATAL, str(self.fatal_error))
        if self.scope is not None and self.scope.refusal is not None:
            raise type(self.scope.refusal)(self.scope.refusal.error)

    def _waiting_topics(self) -> list[str]:
        return sorted({queue.topic for queue in self._queues.values()} | self._pending.topics)

    def _learn(self, event: TopicLearned) -> list[Command]:
        partitioner = self.partitioner(event.topic)
        if partitioner is None:
            partitioner = TopicPartitioner(self._limits.partitioner, self._choose, event.topic)
            self.intake.topics[event.topic] = partitioner
        partitioner.learn(event.count, event.available)
        self._identity.learn_topic(event.topic, event.topic_id)
        self.awaited.pop(event.topic, None)
        commands: list[Command] = []
        for record in self._pending.take(event.topic):
            try:
                self._appender.put(event.topic, partitioner, record)
            except TidelogError as error:
                commands.append(self._settle_pending(event.topic, record, error))
        return commands

    def _refuse(self, event: TopicRefused, now_ms: float) -> list[Command]:
        error = self._pending.refuse(event.topic, event.error, now_ms, self._limits.propagation_max_ms)
        return [] if error is None else self._drop_topic(event.topic, error)

    def _drop_topic(self, topic: str, error: TidelogError) -> list[Command]:
        commands: list[Command] = [self._settle_pending(topic, r, error) for r in self._pending.take(topic)]
        if topic in self.awaited:
            self.awaited[topic] = error
        for queue in [q for q in self._queues.values() if q.topic == topic]:
            while queue.waiting:
                commands.append(self._settle_waiting(queue, error))
            commands += self._give_up(queue, (b for b in queue.sent if not b.in_flight), error)
        return commands

    def _expire(self, now_ms: float) -> Iterator[Command]:
        oldest_ms = now_ms - self._limits.message_timeout_ms
        for topic, record in self._pending.take_older(oldest_ms):
            yield self._settle_pending(topic, record, timed_out(topic, 1, self._limits, None, self.connection_error))
        for queue in list(self._queues.values()):
            while queue.sent and queue.sent[0].created_ms <= oldest_ms:
                first = queue.sent[0]
                yield from self._give_up(queue, (first,), self._expired(queue, first))
            while not queue.sent and queue.waiting and queue.waiting[0].created_ms <= oldest_ms:
                yield self._settle_waiting(queue, self._expired(queue, queue.waiting[0]))
            if queue.is_empty:
                self._queues.pop((queue.topic, queue.partition), None)

    def _expired(self, queue: PartitionQueue, batch: Batch) -> TidelogError:
        return timed_out(f"{queue.topic}-{queue.partition}", batch.count, self._limits, batch, self.connection_error)

    def _settle_waiting(self, queue: PartitionQueue, error: TidelogError) -> Settle:
        batch = queue.waiting.popleft()
        self._appender.close(batch)
        batch.outcome = Outcome(error)
        return self._settle(batch)

    def _settle(self, batch: Batch) -> Settle:
        self._sent.pop(batch.batch_id, None)
        return self._count_out(settle_batch(batch), batch.payload_bytes)

    def _settle_pending(self, topic: str, record: PendingRecord, error: TidelogError) -> Settle:
        return self._count_out(settle_pending(topic, record, error), record.payload_bytes)

    def _count_out(self, settled: Settle, payload_bytes: int) -> Settle:
        self.intake.count -= settled.count
        self.intake.payload_bytes -= payload_bytes
        self.intake.unserved += len(settled.deliveries)
        if self.scope is not None and self.scope.failure is None:
            self.scope.failure = settled.error
        return settled
