"""The rows of the source: records as Arrow batches of a query's columns."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidelog_foundation.records import MAX_DECODED_BYTES, to_arrow
from tidelog_spark.source.offsets import OffsetRange

MAX_ROWS = 10_000
"""The rows per Arrow batch: below a thousand the batches cost Spark most of its time; more rows gain nothing."""

_MILLISECONDS = pa.timestamp("ms", tz="UTC")


def read_rows(records: bytes, planned: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of whole batches that lie in ``planned``, as Arrow batches of exactly ``schema``.

    ``schema`` is the Arrow form of a `spark_schema`. A row without headers has null there, as in Spark's Kafka source.

    Raises:
        CorruptRecordError: a batch does not match its CRC.
    """
    include_headers = "headers" in schema.names
    offset = planned.start_offset
    while offset < planned.end_offset:
        columns = to_arrow(records, offset, planned.end_offset, include_headers, MAX_DECODED_BYTES)
        if columns.num_rows == 0:
            return
        yield from _rows_of(columns, planned, schema)
        offset = columns.column("offset")[-1].as_py() + 1


def _rows_of(columns: pa.RecordBatch, planned: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    whole = pa.RecordBatch.from_arrays([_array(field, columns, planned) for field in schema], schema=schema)
    for first in range(0, whole.num_rows, MAX_ROWS):
        yield whole.slice(first, MAX_ROWS)


def _array(field: pa.Field, columns: pa.RecordBatch, planned: OffsetRange) -> pa.Array:
    match field.name:
        case "topic":
            return pa.repeat(pa.scalar(planned.topic, pa.string()), columns.num_rows)
        case "partition":
            return pa.repeat(pa.scalar(planned.partition, pa.int32()), columns.num_rows)
        case "timestamp":
            return columns.column("timestamp_ms").cast(_MILLISECONDS).cast(field.type)
        case "timestampType":
            return columns.column("timestamp_type")
        case "headers":
            return _null_when_empty(columns.column("headers")).cast(field.type)
        case name:
            return columns.column(name)


def _null_when_empty(headers: pa.ListArray) -> pa.ListArray:
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=is_empty)
