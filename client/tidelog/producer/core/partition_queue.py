"""The batches of one partition: the order of sending, and the effect of an answer on the other batches.

Without numbers (``enable.idempotence=false``), one batch is in flight, and the next follows when it is settled. With
numbers, up to ``window`` are in flight. The rules are those of Kafka's TransactionManager, but stricter where Kafka
allows a duplicate:

1. Batches are numbered on their first attempt, in the order of produce(), and settled in that order.
2. A failed batch is sent again with its number. It follows others in flight only to a leader that has acknowledged a
   batch of this epoch: any other may not know the producer, and would accept a batch before its predecessor.
3. A batch out of sequence waits until all earlier ones have an outcome, and is then sent alone.
4. A number changes only if no log contains the first open batch or ever will: every attempt was refused, or it is out
   of sequence although all earlier ones were acknowledged, so that the leader has lost some. The later batches then
   cannot be in the log either. All of them get numbers of the next epoch, which fences the old one.
5. A failed batch that may be stored leaves a gap. Later batches keep their numbers; if the next one is acknowledged,
   there was no gap. New batches wait until no numbered one is left and get numbers of the next epoch, which fences
   whatever is still in flight.

In a transaction, the epoch belongs to the producer. Where rules 4 and 5 begin another one, the batch and with it the
transaction fails instead. A batch that is too large is split in its epoch: its parts have the same sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tidelog.producer.core.batch import Batch, Outcome
from tidelog.producer.core.numbering import (
    NO_NUMBER,
    Numbering,
    ProducerIdAndEpoch,
    TransactionNumbering,
)
from tidelog.producer.core.splitting import halves
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError

REFUSALS = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    )
)
"""Errors that a leader finds before it appends. All others, such as a change of leader or a timeout, may come later."""

TOO_LARGE = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
"""The batch exceeds ``max.message.bytes`` or ``segment.bytes`` of the topic. Smaller ones may fit."""

OUT_OF_SEQUENCE = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))
"""The leader lacks the previous batch, or no longer knows the producer."""


class PartitionQueue:
    """A queue from a partition's first waiting batch until it is empty. Part of the accumulator.

    ``sent`` has the batches that were sent, oldest first: in flight, to be retried, or with an outcome but after one
    without. ``waiting`` follows; its last batch is open unless closed.
    """

    __slots__ = ("numbering", "partition", "sent", "topic", "waiting", "window")

    def __init__(self, topic: str, partition: int, numbering: Numbering | None = None, window: int = 1) -> None:
        self.topic = topic
        self.partition = partition
        self.numbering = numbering
        self.window = 1 if numbering is None else window
        self.sent: deque[Batch] = deque()
        self.waiting: deque[Batch] = deque()

    @property
    def is_empty(self) -> bool:
        """True if no batch is waiting or sent."""
        return not self.waiting and not self.sent

    @property
    def open_batch(self) -> Batch | None:
        """The batch that accepts records, or None."""
        return self.waiting[-1] if self.waiting and not self.waiting[-1].closed else None

    @property
    def oldest(self) -> Batch:
        """The first batch without an outcome; the queue must not be empty."""
        return self.sent[0] if self.sent else self.waiting[0]

    @property
    def longest_in_flight(self) -> Batch | None:
        """The batch in flight for the longest time."""
        return next((batch for batch in self.sent if batch.in_flight), None)

    def awaiting(self, batch_id: int, attempt: int) -> Batch | None:
        """Return the batch that is waiting for the answer to this attempt."""
        for batch in self.sent:
            if batch.batch_id == batch_id:
                return batch if batch.in_flight and batch.attempts == attempt else None
        return None

    def upcoming(self) -> Batch | None:
        """Return the next batch to send, once time, window and leader allow it."""
        for batch in self.sent:
            if batch.outcome is None and not batch.in_flight:
                return batch
            if batch.outcome is not None and batch.outcome.error is not None:
                return None
        if not self.waiting or len(self.sent) >= self.window:
            return None
        must_wait = self.sent and self.numbering is not None and self.numbering.must_bump
        return None if must_wait else self.waiting[0]

    def may_send(self, batch: Batch, leader: int, now_ms: float) -> bool:
        """Return True if the earlier batches allow the upcoming one to go to a leader now."""
        has_predecessor = False
        for earlier in self.sent:
            if earlier is batch:
                break
            if earlier.outcome is not None:
                continue
            if not earlier.in_flight or earlier.sent_to != leader:
                return False
            has_predecessor = True
        if not has_predecessor:
            return True
        return not batch.goes_alone and self.numbering is not None and self.numbering.is_known_to(leader, now_ms)

    def needs_id(self, batch: Batch) -> bool:
        """Return True if a batch needs a new producer id."""
        return self.numbering is not None and batch.number == NO_NUMBER and self.numbering.needs_id

    def launch(self, batch: Batch, leader: int, now_ms: float, fresh: ProducerIdAndEpoch | None) -> None:
        """Put the upcoming batch in flight, and number it if necessary."""
        if self.waiting and self.waiting[0] is batch:
            self.sent.append(self.waiting.popleft())
            if self.numbering is not None:
                batch.number = self.numbering.take(batch.count, fresh)
        batch.closed = True
        batch.in_flight = True
        batch.goes_alone = False
        batch.sent_to = leader
        batch.sent_ms = now_ms

    def acknowledge(self, batch: Batch, outcome: Outcome, now_ms: float) -> None:
        """Record that the leader has a batch."""
        batch.end_attempt()
        batch.outcome = outcome
        if self.numbering is not None and not self.numbering.must_bump:
            self.numbering.confirm(batch.sent_to, now_ms)

    def fail(self, batch: Batch, error: TidelogError, *, is_refused: bool, retries: int) -> bool:
        """Record a failed attempt; return True if the batch will be sent again.

        ``is_refused`` tells that the attempt has surely stored nothing.
        """
        batch.end_attempt()
        batch.last_error = error
        if not is_refused:
            self._doubt(batch)
        is_out_of_sequence = batch.number != NO_NUMBER and error.code in OUT_OF_SEQUENCE
        if is_out_of_sequence and batch is not self.sent[0]:
            batch.goes_alone = True
            return True
        batch.failures += 1
        if is_out_of_sequence and batch.failures <= retries:
            return self._resolve(batch, error)
        if (error.code.retriable or error.code in OUTAGES) and batch.failures <= retries:
            return True
        batch.outcome = Outcome(error)
        if error.code is ErrorCode.INVALID_PRODUCER_EPOCH and self.numbering is not None:
            self.numbering.give_up_id()
        return False

    def split(self, batch: Batch, error: TidelogError) -> bool:
        """Handle the refusal of a batch as too large; return False if it must fail.

        The first open batch becomes two (Kafka's splitAndReenqueue). They and all later batches get new numbers,
        because by rule 4 no log contains them. A later batch waits for its turn, since its outcome depends on the
        earlier ones.
        """
        batch.end_attempt()
        batch.last_error = error
        if batch is not self.sent[0]:
            batch.goes_alone = True
            return True
        if any(later.outcome is not None and later.outcome.error is None for later in self.sent):
            # The log contains a later batch, so this one would be out of order.
            batch.outcome = Outcome(error)
            return False
        parts = halves(batch)
        if self.numbering is None:
            self.waiting.appendleft(self.sent.popleft())
        elif isinstance(self.numbering, TransactionNumbering):
            self.numbering.rewind(batch.number.base_sequence)
            self._unsend()
        else:
            self._number_anew()
        assert self.waiting[0] is batch
        self.waiting.popleft()
        self.waiting.extendleft(reversed(parts))
        return True

    def recall(self, error: TidelogError) -> None:
        """Abandon all attempts in flight, with unknown outcomes."""
        for batch in self.sent:
            if batch.in_flight:
                batch.end_attempt()
                batch.failures += 1
                batch.last_error = error
                self._doubt(batch)

    def give_up(self, batch: Batch, error: TidelogError) -> None:
        """Fail a batch without an answer; one in flight may be stored."""
        if batch.in_flight:
            batch.end_attempt()
            self._doubt(batch)
        batch.outcome = Outcome(error)

    def drain(self) -> Iterator[Batch]:
        """Remove and yield the settled batches up to the first unsettled one."""
        while self.sent and self.sent[0].outcome is not None:
            batch = self.sent.popleft()
            assert batch.outcome is not None
            if batch.outcome.error is not None and self.numbering is not None:
                self._close_gap(batch)
            yield batch

    def check_invariants(self) -> None:
        """Assert the order of the batches, and that their numbers have no gaps."""
        batches = [*self.sent, *self.waiting]
        ids = [batch.batch_id for batch in batches]
        assert ids == sorted(ids), f"{self.topic}-{self.partition}: batches out of order: {ids}"
        assert all(batch.closed for batch in batches[:-1])
        assert len(self.sent) <= self.window, len(self.sent)
        assert not self.sent or self.sent[0].outcome is None, "the first batch has its outcome and is here"
        for batch in self.waiting:
            assert batch.number == NO_NUMBER
            assert not batch.in_flight
            assert not batch.may_be_stored
        numbers = [batch.number for batch in self.sent]
        if self.numbering is None:
            assert all(number == NO_NUMBER for number in numbers)
        elif self.sent:
            assert len({number[:2] for number in numbers}) == 1, numbers

    def _doubt(self, batch: Batch) -> None:
        batch.may_be_stored = True
        if self.numbering is not None:
            self.numbering.doubt()

    def _resolve(self, first: Batch, error: TidelogError) -> bool:
        if any(batch.outcome is not None and batch.outcome.error is None for batch in self.sent):
            # The log contains a later batch, so this one would be out of order.
            first.outcome = Outcome(error)
            return False
        assert self.numbering is not None
        if not self.numbering.may_renumber:
            first.outcome = Outcome(error)
            return False
        if not first.may_be_stored or not first.follows_gap:
            self._number_anew()
        return True

    def _close_gap(self, given_up: Batch) -> None:
        assert self.numbering is not None
        if not self.numbering.may_renumber:
            self.numbering.must_bump = True
        elif not given_up.may_be_stored:
            self._number_anew()
        elif self.sent:
            self.sent[0].follows_gap = True
        else:
            self.numbering.must_bump = True

    def _number_anew(self) -> None:
        assert self.numbering is not None
        self.numbering.must_bump = True
        self._unsend()

    def _unsend(self) -> None:
        kept = [batch for batch in self.sent if batch.outcome is not None]
        for batch in reversed(self.sent):
            if batch.outcome is None:
                batch.forget_number()
                self.waiting.appendleft(batch)
        self.sent = deque(kept)


class Identity:
    """One producer's identity from its first record on. ``fresh`` is the id for partitions that need one, None if
    missing.
    """

    def __init__(self, max_in_flight: int, *, idempotent: bool, transactional: bool = False) -> None:
        self._max_in_flight = max_in_flight
        self._idempotent = idempotent
        self._new_numbering = TransactionNumbering if transactional else Numbering
        self._numberings: dict[tuple[str, int], Numbering] = {}
        self._topic_ids: dict[str, bytes] = {}
        self.fresh: ProducerIdAndEpoch | None = None

    @property
    def is_missing(self) -> bool:
        """True if a producer id is required but missing."""
        return self._idempotent and self.fresh is None

    @property
    def has_gap(self) -> bool:
        """True if a partition accepts no batches before another epoch."""
        return any(numbering.must_bump for numbering in self._numberings.values())

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """Return a partition's queue; its numbering continues."""
        if not self._idempotent:
            return PartitionQueue(topic, partition)
        numbering = self._numberings.setdefault((topic, partition), self._new_numbering())
        return PartitionQueue(topic, partition, numbering, self._max_in_flight)

    def suffices(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Return True if the upcoming batch has a number or can get one; drop an id already used up there."""
        if not queue.needs_id(batch):
            return True
        assert queue.numbering is not None
        if self.fresh is not None and not queue.numbering.accepts(self.fresh):
            self.fresh = None
        return self.fresh is not None

    def learn_topic(self, topic: str, topic_id: bytes) -> None:
        """Record a topic's id. A different id means that the topic was recreated; its leaders know no producer."""
        if self._topic_ids.setdefault(topic, topic_id) != topic_id:
            self._topic_ids[topic] = topic_id
            for (name, _), numbering in self._numberings.items():
                if name == topic:
                    numbering.doubt()
