"""Gathers records into batches per partition and decides what is sent when, without I/O or a clock.

Rules:

1. Every record that :meth:`Accumulator.append` took is settled exactly once: acknowledged, refused, timed out or
   purged. Nothing else removes it.
2. The log has a partition's records in the order of produce(), whatever is retried, and they are settled in that order,
   unless they are purged. How, also without a record being stored twice, :mod:`.partition_queue` says. Partitions do
   not wait for each other.
3. A batch is ready when it is full, when its first record is ``linger_ms`` old, when a flush is going on, or
   when it failed and its back-off is over, or another node leads than the one that it was last sent to (KIP-951).
4. An error that is retriable is retried until ``retries`` or the record's ``message_timeout_ms`` is used up,
   whichever is first. The time runs from produce(), in flight or not; an answer that comes later is ignored.
5. Records of a topic whose partitions are not known are held in order. When the cluster says for
   ``propagation_max_ms`` that a topic does not exist, its records are given up as _UNKNOWN_TOPIC.
6. A record counts against the queue limits until it is settled and its delivery report is served.
7. An answer that takes longer than ``overdue_ms`` makes the metadata be asked for, again and again. When it names
   another leader the batches in flight are sent there, as after a failure, and what the silent node answers to the
   old attempts is ignored: a paused node holds up its partitions no longer than the cluster takes to replace it.
8. An idempotent producer sends nothing before it has a producer id. When the cluster refuses one for good that is
   fatal: all records are given up with that error, and nothing is taken any more.

What is promised of an idempotent producer's record, with acks=all, as long as a leader with all that is committed is
elected: acknowledged, it is in the log exactly once, behind the acknowledged ones that were produced before. Given up
and not ``may_be_stored``, it is in no log and never will be. Given up and ``may_be_stored``, it is or will be in the
log at most once, and in its order; what is acknowledged later is never followed by it. (The order alone can suffer
where 32,768 epochs of a partition are used up just then, since a new producer id fences nothing.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from tidelog.producer.core.appender import Appender
from tidelog.producer.core.batch import Batch, DeliveryCallback, HeldRecord, Outcome, Rows
from tidelog.producer.core.events import (
    AskMetadata,
    AskProducerId,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    ProducerIdLearned,
    ProducerIdRefused,
    Settle,
    TopicLearned,
    TopicRefused,
)
from tidelog.producer.core.faults import fatal_error, silent_node, timed_out
from tidelog.producer.core.grouping import requests_to
from tidelog.producer.core.held import HeldRecords
from tidelog.producer.core.hindrances import hindrances
from tidelog.producer.core.identity import Identity
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog.producer.core.partition_queue import PartitionQueue
from tidelog.producer.core.partitioner import TopicPartitioner
from tidelog.producer.core.settling import settle_batch, settle_held
from tidelog.producer.core.timing import Timing
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchBuilder


class Accumulator:
    """All records that are not settled. The caller serialises: the shell holds one lock around each method."""

    def __init__(
        self, limits: AccumulatorLimits, backoff_ms: Callable[[int], float], choose: Callable[[int], int]
    ) -> None:
        """``backoff_ms(attempt)`` is the wait after a failure, ``choose(n)`` a random number below n."""
        self._limits = limits
        self._timing = Timing(limits)
        self._backoff_ms = backoff_ms
        self._choose = choose
        self._queues: dict[tuple[str, int], PartitionQueue] = {}
        self._held = HeldRecords()
        self._sent: dict[int, PartitionQueue] = {}
        self._identity = Identity(limits.max_in_flight, idempotent=limits.idempotent)
        self._appender = Appender(limits, self._queues, self._held, self._identity)
        self.intake = self._appender.intake
        self.flushing = 0
        self.awaited: dict[str, TidelogError | None] = {}
        """Topics whose partitions somebody waits for, with the error that they are given up with."""
        self.fatal_error: TidelogError | None = None
        """Why the producer cannot be used any more; its KafkaError is fatal."""

    @property
    def wants_producer_id(self) -> bool:
        """Whether records wait for a producer id."""
        return self._identity.is_missing and self.fatal_error is None and self.count > 0

    @property
    def topics(self) -> set[str]:
        """The topics that were produced to, whether they are known or not."""
        return {*self.intake.topics, *self._held.topics}

    @property
    def count(self) -> int:
        """The records that are not settled."""
        return self.intake.count

    @property
    def payload_bytes(self) -> int:
        """The bytes of their keys, values and headers."""
        return self.intake.payload_bytes

    @property
    def unserved(self) -> int:
        """The settled records whose delivery report is not served."""
        return self.intake.unserved

    @unserved.setter
    def unserved(self, count: int) -> None:
        self.intake.unserved = count

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
                a topic's name that cannot be sent; _FATAL after a fatal error.
            TypeError: the topic's name is not text.
        """
        if self.fatal_error is not None:
            raise fatal_error(ErrorCode._FATAL, str(self.fatal_error))
        return self._appender.append(topic, partition, key, value, headers, timestamp_ms, on_delivery, now_ms)

    def recount(self) -> None:
        """Make everything agree again after Ctrl-C in the middle of :meth:`append`: the record is taken, or not."""
        self._appender.recount()

    def append_batch(
        self, topic: str, partition: int, builder: RecordBatchBuilder, payload_bytes: int, rows: Rows, now_ms: float
    ) -> None:
        """Take a whole batch, behind what was appended before it; :meth:`poll` is due afterwards.

        The caller has looked for room, and the topic has the partition.

        Raises:
            TidelogError: _FATAL after a fatal error.
        """
        if self.fatal_error is not None:
            raise fatal_error(ErrorCode._FATAL, str(self.fatal_error))
        self._appender.append_batch(topic, partition, builder, payload_bytes, rows, now_ms)

    def has_room(self, count: int, payload_bytes: int) -> bool:
        """Say whether so many records may join the others; when nothing else waits they may in any case."""
        return not len(self) or self._limits.has_room(count, payload_bytes, len(self), self.payload_bytes)

    def partitioner(self, topic: str) -> TopicPartitioner | None:
        """Return what picks the partitions of a topic, None while they are not known."""
        lanes = self.intake.topics.get(topic)
        return lanes if isinstance(lanes, TopicPartitioner) else None

    def queue(self, topic: str, partition: int) -> PartitionQueue | None:
        """Return a partition's batches, None while there are none."""
        return self._queues.get((topic, partition))

    def poll(self, now_ms: float, leader_of: Callable[[str, int], int | None]) -> list[Command]:
        """Return what is due: records to give up, batches to send, topics to ask for.

        ``leader_of(topic, partition)`` is the node to send to, or None when it is not known.
        """
        commands: list[Command] = list(self._expire(now_ms))
        unknown = self._held.topics | {topic for topic, error in self.awaited.items() if error is None}
        by_node: dict[int, list[list[Batch]]] = {}
        for queue in self._queues.values():
            leader = leader_of(queue.topic, queue.partition)
            if not self._timing.is_due(queue, self.flushing, leader, now_ms):
                continue
            if leader is None or self._is_still_silent(queue, leader, now_ms):
                unknown.add(queue.topic)
            elif batches := list(self._launch(queue, leader, now_ms)):
                by_node.setdefault(leader, []).append(batches)
        commands += [send for node, batches in by_node.items() for send in requests_to(node, batches)]
        if unknown:
            commands.append(AskMetadata(frozenset(unknown)))
        if self.wants_producer_id:
            commands.append(AskProducerId())
        return commands

    def handle(self, event: Event, now_ms: float) -> list[Command]:
        """Take what happened and return what follows; the caller polls afterwards."""
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
            case ProducerIdRefused():
                return self._end(event.error)
            case _:
                assert_never(event)

    def hindrances(self, leader_of: Callable[[str, int], int | None]) -> Mapping[Hashable, str]:
        """Return by some key what is in the way of each partition's records, where something is."""
        unknown = self._held.topics | {topic for topic, error in self.awaited.items() if error is None}
        return hindrances(self._queues.values(), unknown, leader_of)

    def purge(self, *, in_queue: bool, in_flight: bool) -> list[Command]:
        """Give up what waits (_PURGE_QUEUE) or was sent (_PURGE_INFLIGHT; it may be stored all the same)."""
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

    def next_timer_ms(self, now_ms: float) -> float | None:
        """Return when :meth:`poll` is next due by the clock; None when only an event can change anything.

        To be called after a poll at ``now_ms``: a batch that is still ready then has no known leader, and is due when
        its topic is learned, or when it times out.
        """
        timeout_ms = self._limits.message_timeout_ms
        due = [produced_ms + timeout_ms for produced_ms in self._held.oldest_ms()]
        for queue in self._queues.values():
            due += self._timing.timers_ms(queue, self.flushing, now_ms)
        return min(due, default=None)

    def check_invariants(self) -> None:
        """Assert that the counters agree with the queues and that each partition keeps its order."""
        batches = [b for q in self._queues.values() for b in (*q.sent, *q.waiting)]
        self._appender.check_invariants()
        assert all(self._sent[b.batch_id] is q for q in self._queues.values() for b in q.sent)
        assert set(self._sent) <= {b.batch_id for b in batches}
        self._held.check_invariants()
        for (topic, partition), queue in self._queues.items():
            assert (queue.topic, queue.partition) == (topic, partition)
            assert not queue.is_empty
            queue.check_invariants()
            assert topic not in self._held.topics, f"records of {topic} are held though its partitions are known"

    def _is_still_silent(self, queue: PartitionQueue, leader: int, now_ms: float) -> bool:
        """Say whether an answer is overdue from the node that leads; from another one it is waited for no longer."""
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
            # It is in the log, and where the leader does not remember.
            queue.acknowledge(batch, Outcome(None), now_ms)
            return self._drain(queue)
        if error.code is ErrorCode.MESSAGE_TOO_LARGE and event.is_refused and batch.may_be_split:
            if queue.split(batch, error) and batch not in queue.sent:
                del self._sent[batch.batch_id]
            return self._drain(queue)
        is_retried = queue.fail(batch, error, is_refused=event.is_refused, retries=self._limits.retries)
        if is_retried:
            waits = batch.failures > 0 and not event.leader_known and not batch.goes_alone
            batch.not_before_ms = now_ms + (self._backoff_ms(batch.failures) if waits else 0)
        # A leader that the other replicas cannot reach may be the last to know of another one.
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

    def _end(self, cause: TidelogError) -> list[Command]:
        self.fatal_error = fatal_error(cause.code, cause.message)
        commands: list[Command] = []
        for topic in self._waiting_topics():
            commands += self._drop_topic(topic, self.fatal_error)
        return commands

    def _waiting_topics(self) -> list[str]:
        return sorted({queue.topic for queue in self._queues.values()} | self._held.topics)

    def _learn(self, event: TopicLearned) -> list[Command]:
        partitioner = self.partitioner(event.topic)
        if partitioner is None:
            partitioner = TopicPartitioner(self._limits.partitioner, self._choose, event.topic)
            self.intake.topics[event.topic] = partitioner
        partitioner.learn(event.count, event.available)
        self._identity.learn_topic(event.topic, event.topic_id)
        self.awaited.pop(event.topic, None)
        commands: list[Command] = []
        for record in self._held.take(event.topic):
            try:
                self._appender.put(event.topic, partitioner, record)
            except TidelogError as error:
                commands.append(self._settle_held(event.topic, record, error))
        return commands

    def _refuse(self, event: TopicRefused, now_ms: float) -> list[Command]:
        error = self._held.refuse(event.topic, event.error, now_ms, self._limits.propagation_max_ms)
        return [] if error is None else self._drop_topic(event.topic, error)

    def _drop_topic(self, topic: str, error: TidelogError) -> list[Command]:
        commands: list[Command] = [self._settle_held(topic, r, error) for r in self._held.take(topic)]
        if topic in self.awaited:
            self.awaited[topic] = error
        for queue in [q for q in self._queues.values() if q.topic == topic]:
            while queue.waiting:
                commands.append(self._settle_waiting(queue, error))
            commands += self._give_up(queue, (b for b in queue.sent if not b.in_flight), error)
        return commands

    def _expire(self, now_ms: float) -> Iterator[Command]:
        oldest_ms = now_ms - self._limits.message_timeout_ms
        for topic, record in self._held.take_older(oldest_ms):
            yield self._settle_held(topic, record, timed_out(topic, 1, self._limits, None))
        for queue in list(self._queues.values()):
            while queue.sent and queue.sent[0].created_ms <= oldest_ms:
                first = queue.sent[0]
                yield from self._give_up(queue, (first,), self._expired(queue, first))
            while not queue.sent and queue.waiting and queue.waiting[0].created_ms <= oldest_ms:
                yield self._settle_waiting(queue, self._expired(queue, queue.waiting[0]))
            if queue.is_empty:
                self._queues.pop((queue.topic, queue.partition), None)

    def _expired(self, queue: PartitionQueue, batch: Batch) -> TidelogError:
        return timed_out(f"{queue.topic}-{queue.partition}", batch.count, self._limits, batch)

    def _settle_waiting(self, queue: PartitionQueue, error: TidelogError) -> Settle:
        batch = queue.waiting.popleft()
        self._appender.close(batch)
        batch.outcome = Outcome(error)
        return self._settle(batch)

    def _settle(self, batch: Batch) -> Settle:
        self._sent.pop(batch.batch_id, None)
        return self._count_out(settle_batch(batch), batch.payload_bytes)

    def _settle_held(self, topic: str, record: HeldRecord, error: TidelogError) -> Settle:
        return self._count_out(settle_held(topic, record, error), record.payload_bytes)

    def _count_out(self, settled: Settle, payload_bytes: int) -> Settle:
        self.intake.count -= settled.count
        self.intake.payload_bytes -= payload_bytes
        self.intake.unserved += len(settled.deliveries)
        return settled
