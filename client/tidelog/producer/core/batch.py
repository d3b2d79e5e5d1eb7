"""A batch on its way: the records of one partition that are sent, retried and settled together."""

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
"""How far apart the ids of batches are: room for those that they may be split into."""


class Outcome(NamedTuple):
    """What became of a batch: where the leader has it, or the error it was given up with.

    ``base_offset`` is -1 where the leader did not say.
    """

    error: TidelogError | None
    base_offset: int = -1
    log_append_time_ms: int = -1


class Rows(NamedTuple):
    """The records of a batch that came by produce_batch(): ``sink`` is told what became of those from ``first`` on."""

    sink: Callable[[Any, int], None]
    """``sink(settle, first)``."""
    first: int


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition. Open until full, drained or flushed; then sent, in one or more attempts, until settled.

    ``attempts`` names the present or next attempt: an answer to another one counts for nothing. ``failures`` are those
    that count against ``retries``.
    """

    batch_id: int
    topic: str
    partition: int
    created_ms: float
    contents: BatchContents
    rows: Rows | None = None
    id_span: int = BATCH_ID_SPAN
    """The batches that this one may be split into have the ids from its own on, below this many more."""
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
    """An attempt with the present number has ended, and nobody said that it was refused."""
    follows_gap: bool = False
    """A batch before it in its epoch was given up that may be stored: whether its turn has come is not known."""
    goes_alone: bool = False
    """It was out of sequence: it is sent again when all before it have their outcome."""
    outcome: Outcome | None = None
    _encoded: tuple[ProducerNumber, bytes] | None = None

    @property
    def builder(self) -> RecordBatchBuilder:
        """What encodes its records."""
        return self.contents.builder

    @property
    def deliveries(self) -> list[Delivery]:
        """What has to be reported."""
        return self.contents.deliveries

    @property
    def payload_bytes(self) -> int:
        """The bytes of keys, values and headers."""
        return self.contents.payload_bytes

    @property
    def count(self) -> int:
        """How many records it has."""
        return self.builder.count

    @property
    def may_be_split(self) -> bool:
        """Whether other batches may take its place: no log has it, and there is more than one record."""
        return self.count > 1 and not self.may_be_stored

    def encode(self, number: ProducerNumber | None = None) -> bytes:
        """Return the RecordBatch with a number, its own by default; once it is closed, by one task at a time."""
        if number is None:
            number = self.number
        known = self._encoded
        if known is None or known[0] != number:
            known = self._encoded = (number, self.builder.build(*number))
        return known[1]

    @property
    def is_encoded(self) -> bool:
        """Whether :meth:`encode` has nothing to compress."""
        return self._encoded is not None

    def end_attempt(self) -> None:
        """Note that the attempt in flight, if there is one, was answered or given up."""
        if self.in_flight:
            self.in_flight = False
            self.attempts += 1

    def forget_number(self) -> None:
        """Make it a batch that was never sent: one that is in no log, and comes into none with its old number."""
        self.end_attempt()
        self.number = NO_NUMBER
        self.may_be_stored = self.follows_gap = self.goes_alone = False


class HeldRecord(NamedTuple):
    """A record of a topic whose partitions are not known yet."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    on_delivery: DeliveryCallback | None
    payload_bytes: int
    produced_ms: float

    def delivery(self, relative_offset: int) -> Delivery:
        """Return what its delivery report needs; only for a record with a callback."""
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
