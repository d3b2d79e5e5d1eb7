"""The steps between rows of a topic and `Records`."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from tidelog_connect.converters.converter import Converted, Converter
from tidelog_connect.records import FAILURE_TYPE, HEADERS_TYPE, Records, Side, Step

NamedConverter: TypeAlias = tuple[str, Converter]
"""A converter with the name of its class."""

_STAGES: dict[Side, str] = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER"}


def decoded_records(frame: DataFrame, key: NamedConverter, value: NamedConverter) -> Records:
    """Return the records of a topic's rows, for a sink.

    The frame has the columns of `tidelog_spark`'s source: ``topic``, ``partition``, ``offset``, ``timestamp``
    (TIMESTAMP), ``key`` and ``value`` (BINARY), and ``headers``, which may be absent. They stay, unchanged, in the
    struct ``original``, from which failed records are reported.
    """
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    if "headers" not in frame.columns:
        frame = frame.withColumn("headers", sql.array().cast(HEADERS_TYPE))
    frame = frame.withColumn("original", sql.struct(*names))
    headers = sql.coalesce(sql.col("headers"), sql.array().cast(HEADERS_TYPE)).cast(HEADERS_TYPE)
    frame = frame.withColumns(
        {
            "timestamp": sql.unix_millis("timestamp"),
            "headers": headers,
            "failure": sql.lit(None).cast(FAILURE_TYPE),
        }
    )
    records = Records(frame, None, None)
    sides: tuple[tuple[Side, NamedConverter], ...] = (("key", key), ("value", value))
    for side, (class_name, converter) in sides:
        records = _decoded(records, side, class_name, converter)
    return replace(records, step=None)


def encoded_records(records: Records, key: NamedConverter, value: NamedConverter) -> Records:
    """Return records whose keys and values are bytes, for a source.

    Raises:
        ConfigException: a converter cannot write data of its schema.
    """
    sides: tuple[tuple[Side, NamedConverter], ...] = (("key", key), ("value", value))
    for side, (class_name, converter) in sides:
        converted = converter.encode(sql.col(side), records.schema(side))
        records = _changed(records, side, class_name, converted)
    return replace(records, step=None)


def _decoded(records: Records, side: Side, class_name: str, converter: Converter) -> Records:
    return _changed(records, side, class_name, converter.decode(sql.col(side)))


def _changed(records: Records, side: Side, class_name: str, converted: Converted) -> Records:
    step = Step(_STAGES[side], class_name)
    column: Column = sql.when(sql.col(side).isNotNull(), converted.column)
    return replace(records, step=step).changed({side: column}, converted.failures, {side: converted.schema})
