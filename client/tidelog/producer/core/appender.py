"""The accumulator's slow path: it chooses a record's batch and creates new batches."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.producer.core.batch import BATCH_ID_SPAN, Batch, DeliveryCallback, PendingRecord, Rows
from tidelog.producer.core.engine import BatchContents, Intake
from tidelog.producer.core.faults import check_topic, no_partition
from tidelog.producer.core.limits import RECORD_OVERHEAD, AccumulatorLimits
from tidelog.producer.core.partition_queue import Identity, PartitionQueue
from tidelog.producer.core.partitioner import TopicPartitioner
from tidelog.producer.core.pending import PendingRecords
from tidelog.producer.core.splitting import HEADER_OVERHEAD
from tidelog_foundation.records import RecordBatchBuilder


class Appender:
    """Part of the accumulator; it adds to the accumulator's queues and pending records.

    ``intake`` also holds the open batches, for records that only need to join one. It contains exactly the open batches
    of the queues.
    """

    def __init__(
        self,
        limits: AccumulatorLimits,
        queues: dict[tuple[str, int], PartitionQueue],
        pending: PendingRecords,
        identity: Identity,
    ) -> None:
        self._limits = limits
        self._queues = queues
        self._pending = pending
        self._identity = identity
        self._next_batch_id = 0
        self.intake = Intake(
            batch_size=limits.batch_size,
            batch_num_messages=limits.batch_num_messages,
            max_messages=limits.max_messages,
            max_bytes=limits.max_bytes,
            message_max_bytes=limits.message_max_bytes,
        )

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
        """Accept a record as :meth:`Accumulator.append` does; return True if it begins a batch or a topic."""
        intake = self.intake
        if not headers and intake.append(topic, partition, key, value, timestamp_ms, on_delivery, now_ms):
            return False
        size = (len(key) if key else 0) + (len(value) if value else 0)
        if headers:
            size += sum(len(n.encode()) + len(c or b"") + HEADER_OVERHEAD for n, c in headers)
        self._limits.check(topic, size, intake.count + intake.unserved, intake.payload_bytes)
        lanes = intake.topics.get(topic)
        record = PendingRecord(partition, key, value, headers, timestamp_ms, on_delivery, size, now_ms)
        if isinstance(lanes, TopicPartitioner):
            is_first = self.put(topic, lanes, record)
        else:
            check_topic(topic)
            is_first = self._pending.add(topic, record)
        intake.count += 1
        intake.payload_bytes += size
        return is_first

    def put(self, topic: str, partitioner: TopicPartitioner, record: PendingRecord) -> bool:
        """Append a record to a batch; return True if the batch is new.

        Raises:
            TidelogError: the topic does not have the partition, or the application's partitioner failed.
        """
        if record.partition >= partitioner.count:
            raise no_partition(topic, record.partition, partitioner.count)
        partition = record.partition if record.partition >= 0 else partitioner.for_key(record.key)
        if partition < 0:
            if self._open_batch(topic, partitioner.sticky, record.payload_bytes) is None:
                partitioner.next_sticky()
            partition = partitioner.sticky
        batch = self._open_batch(topic, partition, record.payload_bytes)
        builder = self._new_builder() if batch is None else batch.builder
        relative_offset = builder.append(record.key, record.value, record.headers, record.timestamp_ms)
        is_new = batch is None
        if batch is None:
            # Only now, so that a record that cannot be encoded leaves no empty batch.
            batch = self._queued(topic, partition, BatchContents(builder), record.produced_ms)
            partitioner.open[partition] = batch.contents
        if record.on_delivery is not None:
            batch.deliveries.append(record.delivery(relative_offset))
        batch.contents.payload_bytes += record.payload_bytes
        return is_new

    def append_batch(
        self, topic: str, partition: int, builder: RecordBatchBuilder, payload_bytes: int, rows: Rows, now_ms: float
    ) -> None:
        """Add a whole batch after all others of its partition."""
        contents = BatchContents(builder)
        contents.payload_bytes = payload_bytes
        batch = self._queued(topic, partition, contents, now_ms)
        batch.rows = rows
        batch.closed = True
        self.intake.count += builder.count
        self.intake.payload_bytes += payload_bytes

    def close(self, batch: Batch) -> None:
        """Close a batch to further records."""
        batch.closed = True
        lanes = self.intake.topics[batch.topic]
        if lanes.open[batch.partition] is batch.contents:
            lanes.open[batch.partition] = None

    def recount(self) -> None:
        """Recompute the counters and the intake's open batches from the queues."""
        for place in [place for place, queue in self._queues.items() if queue.is_empty]:
            del self._queues[place]
        self.intake.count, self.intake.payload_bytes = self._totals()
        for lanes in self.intake.topics.values():
            lanes.open[:] = [None] * lanes.count
        for (topic, partition), queue in self._queues.items():
            if queue.open_batch is not None:
                self.intake.topics[topic].open[partition] = queue.open_batch.contents

    def check_invariants(self) -> None:
        """Assert that the counters and the intake's open batches match the queues."""
        assert (self.intake.count, self.intake.payload_bytes) == self._totals()
        for topic, lanes in self.intake.topics.items():
            for partition, contents in enumerate(lanes.open):
                queue = self._queues.get((topic, partition))
                batch = queue.open_batch if queue is not None else None
                assert contents is (None if batch is None else batch.contents), f"{topic}-{partition}"

    def _totals(self) -> tuple[int, int]:
        """Return the number of records and their bytes."""
        batches = [b for queue in self._queues.values() for b in (*queue.sent, *queue.waiting)]
        pending = list(self._pending)
        size = sum(b.payload_bytes for b in batches) + sum(r.payload_bytes for r in pending)
        return sum(b.count for b in batches) + len(pending), size

    def _open_batch(self, topic: str, partition: int, size: int) -> Batch | None:
        queue = self._queues.get((topic, partition))
        batch = queue.open_batch if queue else None
        if batch is None or self._limits.is_full(batch.builder, size + RECORD_OVERHEAD):
            return None
        return batch

    def _new_builder(self) -> RecordBatchBuilder:
        return RecordBatchBuilder(self._limits.compression, self._limits.compression_level)

    def _queued(self, topic: str, partition: int, contents: BatchContents, now_ms: float) -> Batch:
        queue = self._queues.get((topic, partition))
        if queue is None:
            queue = self._queues[topic, partition] = self._identity.queue(topic, partition)
        if queue.waiting:
            self.close(queue.waiting[-1])
        batch = Batch(self._next_batch_id, topic, partition, now_ms, contents)
        self._next_batch_id += BATCH_ID_SPAN
        queue.waiting.append(batch)
        return batch
