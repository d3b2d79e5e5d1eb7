"""The limits of the accumulator, and their enforcement."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.producer.core.partitioner import CustomPartitioner
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchBuilder

RECORD_OVERHEAD = 36
"""The most bytes that a record adds to its key, value and headers in a batch (five varints, two of 64 bits)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorLimits:
    """The accumulator's settings, named as in the producer's configuration."""

    linger_ms: float
    batch_size: int
    batch_num_messages: int
    max_messages: int
    max_bytes: int
    message_max_bytes: int
    message_timeout_ms: float
    propagation_max_ms: float
    """The time for which a topic may be unknown to the cluster before its records fail."""
    retries: int
    idempotent: bool = False
    transactional: bool = False
    max_in_flight: int = 5
    """The most batches of a partition in flight, at most as many as a leader remembers; one unless ``idempotent``."""
    overdue_ms: float = 1_000
    compression: str = "none"
    compression_level: int | None = None
    partitioner: str | CustomPartitioner = "murmur2_random"

    def check(self, topic: str, size: int, count: int, payload_bytes: int) -> None:
        """Check that a record with ``size`` bytes of key, value and headers fits beside ``count`` others.

        ``payload_bytes`` is the total size of the others.

        Raises:
            TidelogError: MESSAGE_TOO_LARGE.
            BufferError: the queue is full.
        """
        if size + RECORD_OVERHEAD > self.message_max_bytes:
            raise error_for(
                ErrorCode.MESSAGE_TOO_LARGE,
                f'a record of {size} bytes for topic "{topic}" exceeds message.max.bytes={self.message_max_bytes}',
            )
        if not self.has_room(1, size, count, payload_bytes):
            raise BufferError(
                f"_QUEUE_FULL: {count} records with {payload_bytes} bytes wait, and {size} bytes more exceed "
                f"queue.buffering.max.messages={self.max_messages} or "
                f"queue.buffering.max.kbytes={self.max_bytes / 1024:g}"
            )

    def has_room(self, more: int, size: int, count: int, payload_bytes: int) -> bool:
        """Return True if ``more`` records of ``size`` bytes fit beside ``count`` others with ``payload_bytes``."""
        return count + more <= self.max_messages and payload_bytes + size <= self.max_bytes

    def is_full(self, builder: RecordBatchBuilder, more: int = 0) -> bool:
        """Return True if a batch cannot take ``more`` bytes or another record."""
        return builder.count >= self.batch_num_messages or builder.size_in_bytes + more > self.batch_size
