"""The settings of SparkSource and SparkSink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog_connect.configuration import (
    NO_DEFAULT_VALUE,
    ConfigDef,
    Importance,
    NonEmptyString,
    Range,
    Type,
    ValidList,
    ValidString,
)

BULK, INCREMENTING = "bulk", "incrementing"
RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_FORMAT = "The name of Spark's data source, such as parquet, jdbc or kafka, or its class."
_MODE = "bulk reads everything again and again; incrementing reads the rows with new values of a column that grows."


def source_settings() -> ConfigDef:
    """Return the settings of SparkSource."""
    found, high, medium, text = ConfigDef(), Importance.HIGH, Importance.MEDIUM, Type.STRING
    column = "The column of incrementing: a whole number, timestamp, date or text."
    for name, kind, default, importance, documentation, validator in (
        ("topic", text, NO_DEFAULT_VALUE, high, "The topic to write.", NonEmptyString()),
        ("format", text, "", high, _FORMAT, None),
        ("path", text, "", high, "The path to read, for formats that have one.", None),
        ("table", text, "", high, "A table of Spark's catalogs to read, instead of format and path.", None),
        ("schema", text, "", high, "The columns, for formats that need them, such as id BIGINT, name STRING.", None),
        ("mode", text, BULK, high, _MODE, ValidString((BULK, INCREMENTING))),
        ("incrementing.column.name", text, "", high, column, None),
        (
            "batch.max.rows",
            Type.INT,
            "100000",
            medium,
            "The most rows in a batch of incrementing.",
            Range(1, 1_000_000),
        ),
        ("poll.interval.ms", Type.LONG, "5000", medium, "The time between two reads without news.", Range(1)),
    ):
        found.define(name, kind, default, importance, documentation, validator=validator)
    return found


def sink_settings() -> ConfigDef:
    """Return the settings of SparkSink."""
    found, high, medium, text = ConfigDef(), Importance.HIGH, Importance.MEDIUM, Type.STRING
    columns = "The columns of records to write; without them, the fields of values."
    nulls = "Without columns, a record without a value: ignore, or fail."
    for name, kind, default, importance, documentation, validator in (
        ("format", text, "", high, _FORMAT, None),
        ("path", text, "", high, "The path to write, for formats that have one; ${topic} is the topic.", None),
        ("table", text, "", high, "The table of Spark's catalogs to append to; ${topic} is the topic.", None),
        ("columns", Type.LIST, "", medium, columns, ValidList(RECORD_COLUMNS)),
        ("partition.by", Type.LIST, "", medium, "The columns by which the data is divided.", None),
        ("behavior.on.null.values", text, "fail", medium, nulls, ValidString(("fail", "ignore"))),
    ):
        found.define(name, kind, default, importance, documentation, validator=validator)
    return found


def check_source(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of a source's settings that do not fit each other, by their names."""
    if settings["table"]:
        for name in ("format", "path", "schema"):
            if settings[name]:
                return {name: f"table has its own {name}"}
    elif not settings["format"]:
        return {"format": "Either format or table is required"}
    if (settings["mode"] == INCREMENTING) != bool(settings["incrementing.column.name"]):
        return {"incrementing.column.name": "mode=incrementing requires incrementing.column.name, and bulk has none"}
    return {}


def check_sink(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the errors of a sink's settings that do not fit each other, by their names."""
    if settings["table"] and settings["path"]:
        return {"path": "Only one of table and path can be given"}
    if not settings["table"] and not settings["format"]:
        return {"format": "Either format or table is required"}
    return {}
