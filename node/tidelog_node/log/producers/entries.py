"""The state of producer ids as data: the batches of each, transactions, and their markers. Pure."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.records import ControlType, read_control

RETAINED_BATCHES = 5
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
NO_TIME = -1


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The offsets of a batch that the log already has, and its max timestamp (the append time under LogAppendTime)."""

    base_offset: int
    last_offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The content of a COMMIT or ABORT control record."""

    is_commit: bool
    coordinator_epoch: int


def read_marker(batch: bytes | bytearray | memoryview, position: int = 0) -> EndTransactionMarker | None:
    """Return the marker in the whole batch at a position.

    None for a data batch, a control batch of another kind, and one whose marker was compacted away.

    Raises:
        CorruptRecordError: the batch is truncated or altered, or its control record is malformed.
    """
    record = read_control(batch, position)
    if record is None:
        return None
    return EndTransactionMarker(record.kind is ControlType.COMMIT, record.coordinator_epoch)


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that a marker ended: its first record's offset and the marker's.

    ``last_stable_offset`` is the first offset that was undecided right after the marker: the start of the oldest
    transaction of another producer, or the offset behind the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_commit: bool


class BatchMetadata(NamedTuple):
    """A batch that a producer may send again; ``offset_delta`` is the last offset minus the first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """One producer in a snapshot or a DescribeProducers response (ProducerSnapshot.json, ``ProducerEntry``).

    Sequence and offset are those of its last batch, -1 if there is none. ``offset_delta`` is last minus first offset of
    that batch. ``last_timestamp`` is the last append's time: the later of the batch's max timestamp and the clock.
    ``current_txn_first_offset`` is -1 without an open transaction. ``older_batches`` are those of the last five that
    came before the last one, in the same epoch, oldest first; Kafka's snapshots have none. ``batch_timestamp`` is the
    last batch's own max timestamp if it differs from ``last_timestamp``, else -1.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int
    older_batches: tuple[BatchMetadata, ...] = ()
    batch_timestamp: int = NO_TIME

    @property
    def batches(self) -> tuple[BatchMetadata, ...]:
        """The retained batches, oldest first."""
        if self.last_offset < 0:
            return self.older_batches
        timestamp = self.last_timestamp if self.batch_timestamp == NO_TIME else self.batch_timestamp
        last = BatchMetadata(self.last_sequence, self.last_offset, self.offset_delta, timestamp)
        return (*self.older_batches, last)
