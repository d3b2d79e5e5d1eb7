"""The columns of the source, which are those of Spark's own Kafka source, all of them nullable, and its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog_foundation.records import MAX_DECODED_BYTES, to_arrow
from tidelog_spark.offsets import OffsetRange

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def spark_schema(include_headers: bool) -> StructType:
    """Return the columns, with ``headers`` only if included."""
    headers = [StructField("headers", ArrayType(_HEADER))] if include_headers else []
    return StructType([*_COLUMNS, *headers])


MAX_ROWS = 10_000
"""The rows per Arrow batch: below a thousand the batches cost Spark most of its time; more rows gain nothing."""

_MILLISECONDS = pa.timestamp("ms", tz="UTC")


def read_rows(records: bytes, planned: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of whole batches that lie in ``planned``, as Arrow batches of exactly ``schema``.

    ``schema`` is the Arrow form of `tidelog_spark.schema.spark_schema`, with or without headers. A row without headers
    has null there, as in Spark's Kafka source.

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
    rows = columns.num_rows
    timestamps = columns.column("timestamp_ms").cast(_MILLISECONDS).cast(schema.field("timestamp").type)
    arrays = [
        columns.column("key"),
        columns.column("value"),
        pa.repeat(pa.scalar(planned.topic, pa.string()), rows),
        pa.repeat(pa.scalar(planned.partition, pa.int32()), rows),
        columns.column("offset"),
        timestamps,
        columns.column("timestamp_type"),
    ]
    if "headers" in schema.names:
        arrays.append(_null_when_empty(columns.column("headers")).cast(schema.field("headers").type))
    whole = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for first in range(0, rows, MAX_ROWS):
        yield whole.slice(first, MAX_ROWS)


def _null_when_empty(headers: pa.ListArray) -> pa.ListArray:
    is_empty = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=is_empty)
