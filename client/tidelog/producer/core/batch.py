"""A batch on its way: the records of one partition that are sent, retried and settled together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidelog.errors import TidelogError
from tidelog.records import RecordBatchBuilder

DeliveryCallback = Callable[[Any, Any], object]
"""``on_delivery(err, msg)``."""


class Delivery(NamedTuple):
    """What a delivery report needs of one record; kept only for records that have a callback."""

    on_delivery: DeliveryCallback
    relative_offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_ms: int
    produced_ms: float


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition. Open until full, drained or flushed; then built once and sent until settled."""

    batch_id: int
    topic: str
    partition: int
    created_ms: float
    builder: RecordBatchBuilder
    deliveries: list[Delivery] = field(default_factory=list)
    payload_bytes: int = 0
    attempts: int = 0
    not_before_ms: float = 0.0
    last_error: TidelogError | None = None
    encoded: bytes | None = None
    closed: bool = False
    sent_to: int = -1
    """The node of the latest attempt, which began at ``sent_ms``."""
    sent_ms: float = 0.0

    @property
    def count(self) -> int:
        """How many records it has."""
        return self.builder.count

    def encode(self) -> bytes:
        """Return the RecordBatch, built at the first call; called by one task at a time, once the batch is closed."""
        if self.encoded is None:
            self.encoded = self.builder.build()
        return self.encoded


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


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, oldest first; the last one is open unless it is closed."""

    topic: str
    partition: int
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: Batch | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self.waiting and self.in_flight is None

    @property
    def open_batch(self) -> Batch | None:
        """The batch that records are appended to, or None."""
        return self.waiting[-1] if self.waiting and not self.waiting[-1].closed else None
