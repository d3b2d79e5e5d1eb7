"""The rows of a sink: the columns that it takes, and their way into a producer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog import Producer
from tidelog_foundation.errors import ConfigError, ErrorCode, error_for

_BYTES = (BinaryType, StringType)
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType, TimestampNTZType),
}
_BUFFER_BYTES = 8 * 1024 * 1024
"""Spark's batches are put together up to this size: each call of the producer waits for its rows."""


def check_schema(schema: StructType, topic: str | None) -> None:
    """Check the columns of the rows.

    Raises:
        ConfigError: a column is missing, unknown or of another type, or nothing names the topic.
    """
    found = {field.name: field.dataType for field in schema.fields}
    unknown = [name for name in found if name not in _TYPES]
    if unknown:
        raise ConfigError(f"unknown column {', '.join(unknown)}: the tidelog sink takes {', '.join(_TYPES)}")
    if "value" not in found:
        raise ConfigError(f"the column value is missing; the columns are {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise ConfigError('nothing names the topic: set the option "topic", or add a column topic')
    for name, data_type in found.items():
        if not isinstance(data_type, _TYPES[name]) or (name == "headers" and not _is_headers(data_type)):
            raise ConfigError(f"column {name} is {data_type.simpleString()}, but must be {_expected(name)}")


def _is_headers(data_type: DataType) -> bool:
    assert isinstance(data_type, ArrayType)
    element = data_type.elementType
    if not isinstance(element, StructType) or element.fieldNames() != ["key", "value"]:
        return False
    return isinstance(element["key"].dataType, StringType) and isinstance(element["value"].dataType, BinaryType)


def _expected(name: str) -> str:
    if name == "headers":
        return "array<struct<key:string,value:binary>>"
    return " or ".join(each().simpleString() for each in _TYPES[name])


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
