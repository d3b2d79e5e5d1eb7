"""Calls of Java's own functions in column expressions, where Kafka's semantics are those of Java.

Spark's ``try_reflect`` calls a static method of a class on Spark's class path, and returns its result as text, or null
where the method throws.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as sql

CLASS_NAMES = {
    "int8": "java.lang.Byte",
    "int16": "java.lang.Short",
    "int32": "java.lang.Integer",
    "int64": "java.lang.Long",
    "float": "java.lang.Float",
    "double": "java.lang.Double",
    "boolean": "java.lang.Boolean",
    "string": "java.lang.String",
}
"""The Java classes of values, by the type of their schema."""

_PARSERS = {
    "int8": "parseByte",
    "int16": "parseShort",
    "int32": "parseInt",
    "int64": "parseLong",
    "float": "parseFloat",
    "double": "parseDouble",
    "boolean": "parseBoolean",
}


def parsed(text: Column, kind: str) -> Column:
    """Return text as a number or boolean of a Connect type by Java's parser, itself as text; null if it throws."""
    return _call(CLASS_NAMES[kind], _PARSERS[kind], text)


def formatted_utc(millis: Column, pattern: str) -> Column:
    """Return a time as text by a pattern of SimpleDateFormat, in UTC."""
    return _call("org.apache.commons.lang3.time.DateFormatUtils", "formatUTC", millis, sql.lit(pattern))


def matches(text: Column, regex: str) -> Column:
    """Tell whether all of a text matches a regular expression of Java."""
    return _call("java.util.regex.Pattern", "matches", sql.lit(regex), text).cast("boolean")


def with_first_replaced(text: Column, regex: str, replacement: str) -> Column:
    """Return a text with the first match of a regular expression replaced (``Matcher.replaceFirst``)."""
    return _call("org.apache.commons.lang3.RegExUtils", "replaceFirst", text, sql.lit(regex), sql.lit(replacement))


def _call(class_name: str, method: str, *arguments: Column) -> Column:
    return sql.try_reflect(sql.lit(class_name), sql.lit(method), *arguments)
