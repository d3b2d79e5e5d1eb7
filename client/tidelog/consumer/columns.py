"""A delivery as Arrow columns, without a Python object per record. pyarrow is imported on first use."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.consumer.core.events import Deliver
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import (
    MAX_DECODED_BYTES,
    RecordBatchHeader,
    data_batches,
    to_arrow,
)

if TYPE_CHECKING:
    import pyarrow


_MAX_INT64 = 2**63 - 1


def decode_rows(item: Deliver, start_offset: int) -> pyarrow.RecordBatch:
    """Return the delivery's records from ``start_offset``, with the columns of :func:`row_schema`; no rows at its end.

    A delivery that decompresses to many bytes comes in parts; see ``MAX_DECODED_BYTES``. The rows end before a damaged
    batch.

    Raises:
        TidelogError: the first batch is damaged or cannot be decoded.
        ModuleNotFoundError: pyarrow is not installed.
    """
    arrow = import_arrow()
    records = memoryview(item.records)
    try:
        decoded = _decode(arrow, _runs(item, records) if item.aborted else [records], start_offset)
    except TidelogError:
        # Decode batch by batch, to separate the intact batches from the damaged one.
        decoded = _decode(arrow, _runs(item, records), start_offset)
    return _with_names(arrow, item, decoded)


def row_schema(arrow: Any) -> pyarrow.Schema:
    """Return the schema of consume_arrow(), with names and types of Spark's Kafka source."""
    header = arrow.struct([arrow.field("key", arrow.string()), arrow.field("value", arrow.binary())])
    schema: pyarrow.Schema = arrow.schema(
        [
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary()),
            arrow.field("topic", arrow.string()),
            arrow.field("partition", arrow.int32()),
            arrow.field("offset", arrow.int64()),
            arrow.field("timestamp", arrow.timestamp("ms", tz="UTC")),
            arrow.field("headers", arrow.list_(header)),
        ]
    )
    return schema


def import_arrow() -> Any:
    """Return pyarrow; raise ModuleNotFoundError with installation instructions."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        text = "consume_arrow() needs pyarrow: pip install tidelog[spark]"
        raise ModuleNotFoundError(text, name="pyarrow") from error
    return pyarrow


def _runs(item: Deliver, records: memoryview) -> list[memoryview]:
    return [records[position : position + header.size_in_bytes] for position, header in readable_batches(item)]


def _decode(arrow: Any, runs: Sequence[memoryview], start_offset: int) -> Any:
    decoded: list[Any] = []
    size = 0
    for run in runs or [memoryview(b"")]:
        try:
            columns = to_arrow(run, start_offset, _MAX_INT64, include_headers=True, max_bytes=MAX_DECODED_BYTES)
        except TidelogError:
            if any(part.num_rows for part in decoded):
                break
            raise
        decoded.append(columns)
        size += columns.nbytes
        if size >= MAX_DECODED_BYTES:
            break
    if len(decoded) == 1:
        return decoded[0]
    return arrow.Table.from_batches(decoded).combine_chunks()


def _with_names(arrow: Any, item: Deliver, decoded: Any) -> pyarrow.RecordBatch:
    rows = decoded.num_rows
    schema = row_schema(arrow)
    arrays = [
        _whole(arrow, decoded.column("key")),
        _whole(arrow, decoded.column("value")),
        arrow.repeat(_scalar(arrow, arrow.string(), item.topic.encode()), rows),
        arrow.repeat(_scalar(arrow, arrow.int32(), item.partition.to_bytes(4, sys.byteorder)), rows),
        _whole(arrow, decoded.column("offset")),
        _whole(arrow, decoded.column("timestamp_ms")).view(schema.field("timestamp").type),
        _null_where_empty(arrow, _whole(arrow, decoded.column("headers"))),
    ]
    batch: pyarrow.RecordBatch = arrow.RecordBatch.from_arrays(arrays, schema=schema)
    return batch


def _whole(arrow: Any, column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, arrow.ChunkedArray) else column


def _scalar(arrow: Any, kind: Any, data: bytes) -> Any:
    """Return a scalar from its bytes. ``pyarrow.scalar()`` would import pandas, which may take seconds."""
    ends = [arrow.py_buffer(struct.pack("=ii", 0, len(data)))] if kind == arrow.string() else []
    return arrow.Array.from_buffers(kind, 1, [None, *ends, arrow.py_buffer(data)])[0]


def _null_where_empty(arrow: Any, headers: Any) -> Any:
    if not len(headers.values):
        return arrow.nulls(len(headers), headers.type)
    # Import only if there are headers: this module takes half as long to import as the rest of pyarrow.
    import pyarrow.compute

    none = _scalar(arrow, arrow.int32(), bytes(4))
    is_empty = pyarrow.compute.equal(pyarrow.compute.list_value_length(headers), none)
    return arrow.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=is_empty)


def readable_batches(item: Deliver) -> Iterator[tuple[int, RecordBatchHeader]]:
    """Yield the position and header of each batch with records at or after the delivery's offset, in order.

    Raises:
        CorruptRecordError: a transaction marker is malformed.
    """
    for position, header in data_batches(item.records, item.aborted):
        if header.next_offset > item.offset:
            yield position, header
