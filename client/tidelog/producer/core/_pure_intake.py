"""The fast path of most records into their partition's open batch, and the definition of its compiled twin.

It refuses all other records without a change, and they take the accumulator's slow path: records with headers, of a
topic with unknown partitions, of a partition without an open batch, or for a full batch or queue. The slow path has the
same result for every record, so the twins may accept different ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.producer.core.hashes import KeyHash
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder

RECORD_OVERHEAD = 36
"""The most bytes that a record adds to its key, value and headers in a batch (five varints, two of 64 bits)."""
_NOWHERE = -1


class Delivery:
    """The data for one record's delivery report; exists only for records with a callback."""

    __slots__ = ("headers", "key", "on_delivery", "produced_ms", "relative_offset", "timestamp_ms", "value")

    def __init__(
        self,
        on_delivery: Callable[[Any, Any], object],
        relative_offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        produced_ms: float,
    ) -> None:
        self.on_delivery = on_delivery
        self.relative_offset = relative_offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self.produced_ms = produced_ms


class BatchContents:
    """The records of a batch: its builder, its delivery reports, and the bytes of keys, values and headers."""

    __slots__ = ("builder", "deliveries", "payload_bytes")

    def __init__(self, builder: RecordBatchBuilder) -> None:
        self.builder = builder
        self.deliveries: list[Delivery] = []
        self.payload_bytes = 0


class TopicLanes:
    """A topic's open batches by partition, and its choice of partitions; ``sticky`` is -1 until metadata arrives.

    ``key_hash`` is a ``KeyHash``. ``keyless_hash`` is the hash of a missing key, -1 if such records are sticky.
    ``empty_sticks`` makes records with an empty key sticky. If ``is_plain`` is false, the partitioner chooses.
    """

    def __init__(self, key_hash: int, keyless_hash: int, empty_sticks: bool, is_plain: bool) -> None:
        self.count = 0
        self.sticky = _NOWHERE
        self.key_hash = key_hash
        self.keyless_hash = keyless_hash
        self.empty_sticks = empty_sticks
        self.is_plain = is_plain
        self.open: list[BatchContents | None] = []

    def widen(self, count: int) -> None:
        """Set the number of partitions, which never shrinks."""
        self.open += [None] * (count - len(self.open))
        self.count = len(self.open)

    def partition_of(self, key: bytes | None) -> int:
        """Return the partition of a key, or -1 if the partitioner must choose."""
        if not self.is_plain or not self.count:
            return _NOWHERE
        if not self.key_hash or (not key and key is not None and self.empty_sticks):
            return self.sticky
        if key is None:
            return self.sticky if self.keyless_hash < 0 else self.keyless_hash % self.count
        return KeyHash(self.key_hash).of(key) % self.count


class Intake:
    """An accumulator's counters and its topics' open batches.

    ``count`` unsettled records have ``payload_bytes``; ``unserved`` settled ones still await their reports.
    """

    def __init__(
        self, *, batch_size: int, batch_num_messages: int, max_messages: int, max_bytes: int, message_max_bytes: int
    ) -> None:
        self.count = 0
        self.payload_bytes = 0
        self.unserved = 0
        self.topics: dict[str, TopicLanes] = {}
        self._batch_size = batch_size
        self._batch_num_messages = batch_num_messages
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._message_max_bytes = message_max_bytes

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        on_delivery: Callable[[Any, Any], object] | None,
        produced_ms: float,
    ) -> bool:
        """Append a record without headers to its partition's open batch; return False, without a
        change, if that fails.
        """
        lanes = self.topics.get(topic)
        size = (len(key) if key else 0) + (len(value) if value else 0)
        if lanes is None or not self._has_room(size):
            return False
        if partition == _NOWHERE:
            partition = lanes.partition_of(key)
        contents = lanes.open[partition] if 0 <= partition < lanes.count else None
        if contents is None or self._is_full(contents, size):
            return False
        relative_offset = contents.builder.append(key, value, (), timestamp_ms)
        if on_delivery is not None:
            contents.deliveries.append(
                Delivery(on_delivery, relative_offset, key, value, (), timestamp_ms, produced_ms)
            )
        contents.payload_bytes += size
        self.payload_bytes += size
        self.count += 1
        return True

    def _has_room(self, size: int) -> bool:
        return (
            size + RECORD_OVERHEAD <= self._message_max_bytes
            and self.count + self.unserved < self._max_messages
            and self.payload_bytes + size <= self._max_bytes
        )

    def _is_full(self, contents: BatchContents, size: int) -> bool:
        builder = contents.builder
        room = self._batch_size - builder.size_in_bytes
        assert builder.size_in_bytes > HEADER_SIZE
        return builder.count >= self._batch_num_messages or size + RECORD_OVERHEAD > room
