"""Partitioners: the folders of a sink's records, with the names and settings of the S3 and HDFS connectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, types
from pyspark.sql import functions as sql

from tidelog_connect.configuration import ConfigException
from tidelog_connect.connectors.files.path_format import date_folders, path_format_of
from tidelog_connect.connectors.files.sink_settings import DEFAULT, FIELD, partitioner_of


@dataclass(frozen=True, slots=True)
class Folder:
    """One level of folders: a prefix such as ``country=``, and the text behind it, a column."""

    prefix: str
    text: Column


def folders(settings: Mapping[str, Any], schema: types.StructType) -> list[Folder]:
    """Return the levels of folders below the topic's, for rows of a schema.

    Raises:
        ConfigException: a field does not exist, or values have no fields.
    """
    partitioner = partitioner_of(settings)
    if partitioner == DEFAULT:
        return [Folder("partition=", sql.col("partition").cast("string"))]
    if partitioner == FIELD:
        names = settings["partition.field.name"]
        return [Folder(f"{name}=", value_field(schema, name)[0].cast("string")) for name in names]
    time = _local_time(_record_time(settings, schema), settings["timezone"], settings["partition.duration.ms"])
    parts = date_folders(path_format_of(partitioner, settings["path.format"]))
    return [Folder(part.prefix, sql.date_format(time, part.pattern)) for part in parts]


def value_field(schema: types.StructType, path: str) -> tuple[Column, types.DataType]:
    """Return the column and type of a field of the values, such as ``customer.country``.

    Raises:
        ConfigException: it does not exist.
    """
    column, found = sql.col("value"), schema["value"].dataType
    for name in path.split("."):
        if not isinstance(found, types.StructType):
            raise ConfigException(
                f"Values have no field {path}: they need a schema, which value.converter gives, and are of type"
                f" {found.simpleString()}"
            )
        if name not in found.names:
            raise ConfigException(f"Values have no field {path}; they have {', '.join(found.names)}")
        column, found = column.getField(name), found[name].dataType
    return column, found


def millis(column: Column, kind: types.DataType) -> Column:
    """Return milliseconds since 1970: of a timestamp, a date, a text in ISO 8601, or a number that is such."""
    if isinstance(kind, types.NumericType):
        return column.cast("bigint")
    return sql.unix_millis(column.cast("timestamp"))


def _record_time(settings: Mapping[str, Any], schema: types.StructType) -> Column:
    match settings["timestamp.extractor"]:
        case "Wallclock":
            return sql.current_timestamp()
        case "Record":
            return sql.timestamp_millis(millis(sql.col("timestamp"), schema["timestamp"].dataType))
    return sql.timestamp_millis(millis(*value_field(schema, settings["timestamp.field"])))


def _local_time(time: Column, zone: str, duration_ms: int) -> Column:
    """Return the time of day in a zone, as a time without one, rounded down to a duration if that is positive."""
    local = sql.convert_timezone(None, sql.lit(zone), time)
    if duration_ms <= 0:
        return local
    utc = sql.to_utc_timestamp(local, sql.current_timezone())
    rounded = sql.floor(sql.unix_millis(utc) / duration_ms) * duration_ms
    return sql.convert_timezone(None, sql.lit("UTC"), sql.timestamp_millis(rounded))
