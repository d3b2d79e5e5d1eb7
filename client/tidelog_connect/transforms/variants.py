"""Data without a schema: a VARIANT with what JSON has, as column expressions.

JSON's null is null. An object is Kafka's ``Map``; its fields are read and written as a MAP<STRING, VARIANT>, in which a
field that is null has a variant null or a null.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sql

_FIELDS = "map<string,variant>"
_NUMBERS = ("DECIMAL", "DOUBLE", "FLOAT")
_CLASSES = {
    "BIGINT": "java.lang.Long",
    "STRING": "java.lang.String",
    "BOOLEAN": "java.lang.Boolean",
    "OBJECT": "java.util.HashMap",
    "ARRAY": "java.util.ArrayList",
    "TINYINT": "java.lang.Byte",
    "SMALLINT": "java.lang.Short",
    "INT": "java.lang.Integer",
}


def kind(value: Column) -> Column:
    """Return the type of a variant, without its parameters: OBJECT, ARRAY, STRING, BIGINT, DECIMAL, DOUBLE, BOOLEAN."""
    return sql.regexp_extract(sql.schema_of_variant(value), "^[A-Z]+", 0)


def class_name(value: Column) -> Column:
    """Return the Java class of a variant's value in Kafka Connect, or ``null``."""
    pairs = [part for name, java in _CLASSES.items() for part in (sql.lit(name), sql.lit(java))]
    known = sql.element_at(sql.create_map(*pairs), kind(value))
    return sql.when(value.isNull(), "null").otherwise(sql.coalesce(known, sql.lit("java.lang.Double")))


def is_object(value: Column) -> Column:
    """Tell whether a variant is an object; null is none."""
    return sql.coalesce(kind(value) == "OBJECT", sql.lit(False))


def is_fraction(value: Column) -> Column:
    """Tell whether a variant is a number that Kafka Connect reads as a double."""
    return kind(value).isin(*_NUMBERS)


def fields(value: Column) -> Column:
    """Return the fields of an object."""
    return sql.try_variant_get(value, "$", _FIELDS)


def from_fields(found: Column) -> Column:
    """Return the object that has these fields."""
    return sql.to_variant_object(found)


def field(found: Column, name: str) -> Column:
    """Return a field's value, or null where it is absent or null."""
    return present(sql.try_element_at(found, sql.lit(name)))


def present(value: Column) -> Column:
    """Return a variant, with null for a variant null."""
    return sql.when(~sql.is_variant_null(value), value)


def put(found: Column, name: str, value: Column) -> Column:
    """Return fields with one more, or with another value of a field."""
    others = sql.map_filter(found, lambda key, _: key != name)
    return sql.map_concat(others, sql.create_map(sql.lit(name), value.cast("variant")))


def without(found: Column, *names: str) -> Column:
    """Return fields without some of them."""
    return sql.map_filter(found, lambda key, _: ~key.isin(*names)) if names else found


def number_text(value: Column) -> Column:
    """Return a variant's scalar as Java prints the value that Kafka Connect would have."""
    return sql.when(is_fraction(value), value.cast("double").cast("string")).otherwise(value.cast("string"))


def text(value: Column) -> Column:
    """Return a variant as text: scalars as Java prints them, objects and arrays as JSON."""
    nested = kind(value).isin("OBJECT", "ARRAY")
    return sql.when(nested, sql.to_json(value)).otherwise(number_text(value))
