"""Data with a schema: a column of the schema's Spark type, as column expressions."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as sql

from tidelog_connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP, ConnectSchema, SchemaType, spark_type
from tidelog_connect.transforms.java import CLASS_NAMES, formatted_utc

MILLIS_PER_DAY = 86_400_000

_LOGICAL_CLASSES = {
    DATE: "java.util.Date",
    TIME: "java.util.Date",
    TIMESTAMP: "java.util.Date",
    DECIMAL: "java.math.BigDecimal",
}
_NESTED_CLASSES = {
    SchemaType.STRUCT: "org.apache.kafka.connect.data.Struct",
    SchemaType.ARRAY: "java.util.ArrayList",
    SchemaType.MAP: "java.util.HashMap",
    SchemaType.BYTES: "[B",
}


def class_name(schema: ConnectSchema) -> str:
    """Return the Java class of a schema's values in Kafka Connect."""
    if schema.name in _LOGICAL_CLASSES:
        return _LOGICAL_CLASSES[schema.name]
    return _NESTED_CLASSES.get(schema.type) or CLASS_NAMES[schema.type.value]


def default_of(schema: ConnectSchema) -> Column:
    """Return the default of a schema as a value of its type; null where it has none."""
    kind = spark_type(schema)
    if schema.default is None:
        return sql.lit(None).cast(kind)
    if schema.type is SchemaType.BYTES:
        return sql.unbase64(sql.lit(str(schema.default)))
    if schema.name == TIMESTAMP:
        return sql.timestamp_millis(sql.lit(schema.default).cast("bigint"))
    if schema.name == DATE:
        return sql.date_from_unix_date(sql.lit(schema.default).cast("int"))
    return sql.lit(schema.default).cast(kind)


def field(value: Column, name: str, schema: ConnectSchema, replace_null: bool = True) -> Column:
    """Return a struct's field, or its default where it is null and ``replace_null`` is set."""
    found = value.getField(name)
    return sql.coalesce(found, default_of(schema)) if replace_null and schema.default is not None else found


def struct(columns: Iterable[tuple[str, Column]]) -> Column:
    """Return the struct of named columns."""
    named = [column.alias(name) for name, column in columns]
    return sql.struct(*named) if named else sql.from_json(sql.lit("{}"), "STRUCT<>")


def millis(value: Column, schema: ConnectSchema) -> Column:
    """Return the milliseconds of a timestamp, date or time, as its ``java.util.Date`` has them."""
    if schema.name == TIMESTAMP:
        return sql.unix_millis(value)
    if schema.name == DATE:
        return sql.unix_date(value).cast("bigint") * sql.lit(MILLIS_PER_DAY)
    return value.cast("bigint")


def date_text(found: Column) -> Column:
    """Return milliseconds in the format that ``Values.dateFormatFor`` chooses: a time, a date, or both."""
    return (
        sql.when(found < MILLIS_PER_DAY, formatted_utc(found, "HH:mm:ss.SSS'Z'"))
        .when(found % MILLIS_PER_DAY == 0, formatted_utc(found, "yyyy-MM-dd"))
        .otherwise(formatted_utc(found, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"))
    )


def text(value: Column, schema: ConnectSchema) -> Column:
    """Return a value as ``Values.convertToString`` does: scalars as Java prints them, structs and lists as JSON."""
    if schema.name in (TIMESTAMP, DATE, TIME):
        return sql.when(value.isNotNull(), date_text(millis(value, schema)))
    if schema.type is SchemaType.BYTES and schema.name != DECIMAL:
        return sql.base64(value)
    if schema.type in (SchemaType.STRUCT, SchemaType.ARRAY, SchemaType.MAP):
        return sql.to_json(value, {"ignoreNullFields": "false"})
    return value.cast("string")
