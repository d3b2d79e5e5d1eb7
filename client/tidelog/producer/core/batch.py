"""A batch in transit: records of one partition that are sent, retried and settled together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.producer.core.engine import BatchContents, Delivery
from tidelog.producer.core.numbering import NO_NUMBER, ProducerNumber
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import RecordBatchBuilder

DeliveryCallback = Callable[[Any, Any], object]
"""``on_delivery(err, msg)``."""


BATCH_ID_SPAN = 2**32
"""The distance between the ids of batches, which leaves room for the ids of split batches."""


class Outcome(NamedTuple):
    """A batch's outcome: its place in the log, or the error that ended it.

    ``base_offset`` is -1 if the leader did not tell it.
    """

    error: TidelogError | None
    base_offset: int = -1
    log_append_time_ms: int = -1


class Rows(NamedTuple):
    """The records of a batch from produce_batch(); ``sink`` gets the outcome of the rows from ``first`` on."""

    sink: Callable[[Any, int], None]
    """``sink(settle, first)``."""
    first: int


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition: open until full, drained or flushed, then sent in one or more attempts until settled.

    ``attempts`` identifies the current or next attempt; answers to others are ignored. ``failures`` counts toward
    ``retries``.
    """

    batch_id: int
    topic: str
    partition: int
    created_ms: float
    contents: BatchContents
    rows: Rows | None = None
    id_span: int = BATCH_ID_SPAN
    """The number of ids, from the batch's own on, for the batches into which it may be split."""
    attempts: int = 0
    failures: int = 0
    not_before_ms: float = 0.0
    last_error: TidelogError | None = None
    closed: bool = False
    in_flight: bool = False
    sent_to: int = -1
    """The node of the latest attempt, which began at ``sent_ms``."""
    sent_ms: float = 0.0
    number: ProducerNumber = NO_NUMBER
    may_be_stored: bool = False
    """True if an attempt with the current number has ended without a refusal."""
    follows_gap: bool = False
    """True if an earlier batch of its epoch failed but may be stored; its sequence may then have a gap."""
    goes_alone: bool = False
    """True if it was out of sequence; it is sent again after all earlier batches have an outcome."""
    outcome: Outcome | None = None
    _encoded: tuple[ProducerNumber, bytes] | None = None

    @property
    def builder(self) -> RecordBatchBuilder:
        """The encoder of its records."""
        return self.contents.builder

    @property
    def deliveries(self) -> list[Delivery]:
        """The pending delivery reports."""
        return self.contents.deliveries

    @property
    def payload_bytes(self) -> int:
        """The bytes of keys, values and headers."""
        return self.contents.payload_bytes

    @property
    def count(self) -> int:
        """The number of records."""
        return self.builder.count

    @property
    def may_be_split(self) -> bool:
        """True if other batches may replace it: no log contains it, and it has more than one record."""
        return self.count > 1 and not self.may_be_stored

    def encode(self, number: ProducerNumber | None = None) -> bytes:
        """Return the RecordBatch with a number, by default its own. Call it on a closed batch, from
        one task at a time.
        """
        if number is None:
            number = self.number
        known = self._encoded
        if known is None or known[0] != number:
            known = self._encoded = (number, self.builder.build(*number))
        return known[1]

    @property
    def is_encoded(self) -> bool:
        """True if :meth:`encode` has nothing left to compress."""
        return self._encoded is not None

    def end_attempt(self) -> None:
        """Record that the attempt in flight, if any, was answered or given up."""
        if self.in_flight:
            self.in_flight = False
            self.attempts += 1

    def forget_number(self) -> None:
        """Make the batch unsent and unnumbered. No log contains it, or will accept it under its old number."""
        self.end_attempt()
        self.number = NO_NUMBER
        self.may_be_stored = self.follows_gap = self.goes_alone = False


class PendingRecord(NamedTuple):
    """A record of a topic with unknown partitions."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    on_delivery: DeliveryCallback | None
    payload_bytes: int
    produced_ms: float

    def delivery(self, relative_offset: int) -> Delivery:
        """Return the data for its delivery report; it must have a callback."""
        assert self.on_delivery is not None
        return Delivery(
            self.on_delivery,
            relative_offset,
            self.key,
            self.value,
            self.headers,
            self.timestamp_ms,
            self.produced_ms,
        )
