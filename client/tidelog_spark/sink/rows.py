"""The rows of a sink on their way into a producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidelog import Producer
from tidelog_foundation.errors import ErrorCode, error_for

_BUFFER_BYTES = 8 * 1024 * 1024
"""Spark's batches are put together up to this size: each call of the producer waits for its rows."""


def tables_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows in tables of a few megabytes, none of them empty."""
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(batch)
        size += batch.nbytes
        if size >= _BUFFER_BYTES:
            yield pa.Table.from_batches(pending)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def produce_rows(producer: Producer, topic: str | None, rows: pa.Table) -> None:
    """Store the rows: in ``topic``, or in the topics that their column names.

    Raises:
        KafkaException: INVALID_TOPIC_EXCEPTION for a row without a topic; the errors of ``produce_batch()``.
    """
    if "topic" not in rows.column_names:
        assert topic is not None
        producer.produce_batch(topic, rows)
        return
    column, rows = rows.column("topic"), rows.drop_columns(["topic"])
    if topic is not None:
        producer.produce_batch(topic, rows)
        return
    for name in pc.unique(column).to_pylist():
        if name is None:
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "a row has null in the column topic")
        producer.produce_batch(name, rows.filter(pc.equal(column, name)))
