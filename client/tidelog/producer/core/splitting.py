"""The division of a batch that a leader refuses as too large (Kafka's ProducerBatch.split)."""

from __future__ import annotations

from itertools import accumulate

from tidelog.producer.core.batch import Batch
from tidelog.producer.core.engine import BatchContents, Delivery
from tidelog_foundation.records import Record, read_records, record_size_upper_bound

HEADER_OVERHEAD = 10
"""The bytes that a header adds to its name and content."""


def payload_size(record: Record) -> int:
    """Return a record's size in the queue: the bytes of key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(n.encode()) + len(c or b"") + HEADER_OVERHEAD for n, c in record.headers)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Return two unsent batches with about half of the bytes each; the batch needs at least two records.

    The first keeps the batch's id and thus its attempts. The records keep their order, time and callbacks.
    """
    records = read_records(batch.encode())
    sizes = list(accumulate(record_size_upper_bound(r.key, r.value, r.headers) for r in records))
    cut = next(n for n, size in enumerate(sizes, start=1) if 2 * size >= sizes[-1])
    cut = min(cut, len(records) - 1)
    # One id per record suffices for any number of further divisions.
    first = _part(batch, records[:cut], 0, batch.batch_id, cut)
    second = _part(batch, records[cut:], cut, batch.batch_id + cut, batch.id_span - cut)
    # The sum equals the original batch's count, however that was computed.
    first.contents.payload_bytes = min(first.payload_bytes, batch.payload_bytes)
    second.contents.payload_bytes = batch.payload_bytes - first.payload_bytes
    return first, second


def _part(batch: Batch, records: list[Record], first: int, batch_id: int, span: int) -> Batch:
    builder = batch.builder.emptied()
    for record in records:
        builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    contents = BatchContents(builder)
    contents.payload_bytes = sum(map(payload_size, records))
    end = first + len(records)
    contents.deliveries.extend(_moved(d, first) for d in batch.deliveries if first <= d.relative_offset < end)
    rows = None if batch.rows is None else batch.rows._replace(first=batch.rows.first + first)
    part = Batch(batch_id, batch.topic, batch.partition, batch.created_ms, contents, rows, span)
    part.attempts, part.failures, part.last_error, part.closed = batch.attempts, batch.failures, batch.last_error, True
    return part


def _moved(delivery: Delivery, first: int) -> Delivery:
    return Delivery(
        delivery.on_delivery,
        delivery.relative_offset - first,
        delivery.key,
        delivery.value,
        delivery.headers,
        delivery.timestamp_ms,
        delivery.produced_ms,
    )
