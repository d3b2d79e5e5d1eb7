"""Infers the columns of a topic without a definition from a sample of its records. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tidelog_spark.sql.definitions import METADATA_TYPES, Column, Kind, Part, Relation
from tidelog_spark.sql.types import quoted_if_needed

KEY = "_key"
MAX_FIELDS = 500
"""An object with more fields is a map or a mistake, and stays text."""
_MAX_DEPTH = 20
_METADATA = ("partition", "offset", "timestamp")
_INT64 = 2**63
_NUMBERS = (("BIGINT", "DOUBLE"), ("DOUBLE", "BIGINT"))

JsonType = str | tuple["JsonType"] | dict[str, "JsonType"]
"""A type of Spark; a tuple of an array's element type; or the fields of an object. An empty text is null."""
_NULL = ""
_TEXT = "STRING"


def infer_relation(topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Relation:
    """Return a stream over a topic with the columns that a sample of its records shows.

    If all values are JSON objects, each of their fields is a column. Otherwise the column ``value`` has the value, as
    text if all are UTF-8. ``_key``, ``_partition``, ``_offset`` and ``_timestamp`` have the rest of the record, unless
    a field has such a name.
    """
    fields = _fields_of(values)
    format_name = "raw" if fields is None else "json"
    columns = [Column("value", _type_of_bytes(values))] if fields is None else fields
    taken = {column.name.lower() for column in columns}
    own = [Column(KEY, _type_of_bytes(keys), Part.KEY)]
    own += [Column(f"_{name}", METADATA_TYPES[name], Part.METADATA, name) for name in _METADATA]
    first, *rest = [column if column.name not in taken else None for column in own]
    ordered = [first, *columns, *rest]
    present = tuple(column for column in ordered if column is not None)
    return Relation(topic, Kind.STREAM, topic, present, format_name, key_format="raw")


def _fields_of(values: Sequence[bytes | None]) -> list[Column] | None:
    """Return the columns of values that are all JSON objects; None if they are not, or fit no columns."""
    merged: JsonType = _NULL
    for value in values:
        if value is None:
            continue
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict):
            return None
        merged = _merge(merged, _type_of(document))
    if not isinstance(merged, dict) or not merged:
        return None
    return [Column(name, spark_type(kind)) for name, kind in merged.items()]


def _type_of_bytes(values: Iterable[bytes | None]) -> str:
    try:
        for value in values:
            if value is not None:
                value.decode()
    except UnicodeDecodeError:
        return "BINARY"
    return _TEXT


def _type_of(value: object, depth: int = 0) -> JsonType:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "BIGINT" if -_INT64 <= value < _INT64 else "DOUBLE"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, list) and depth < _MAX_DEPTH:
        element: JsonType = _NULL
        for each in value:
            element = _merge(element, _type_of(each, depth + 1))
        return (element,)
    if isinstance(value, dict) and depth < _MAX_DEPTH and _is_struct(value):
        return {name: _type_of(each, depth + 1) for name, each in value.items()}
    return _TEXT


def _is_struct(value: Mapping[str, object]) -> bool:
    """Return whether the fields have names that Spark can tell apart, and are not too many."""
    return len(value) <= MAX_FIELDS and len({name.lower() for name in value}) == len(value) and all(value)


def _merge(one: JsonType, other: JsonType) -> JsonType:
    """Return the type that has the values of both; text if there is no other."""
    if one in (_NULL, other):
        return other
    if other == _NULL:
        return one
    if isinstance(one, tuple) and isinstance(other, tuple):
        return (_merge(one[0], other[0]),)
    if isinstance(one, dict) and isinstance(other, dict):
        merged = {name: _merge(kind, other.get(name, _NULL)) for name, kind in one.items()}
        merged |= {name: kind for name, kind in other.items() if name not in one}
        return merged if _is_struct(merged) else _TEXT
    return "DOUBLE" if (one, other) in _NUMBERS else _TEXT


def spark_type(kind: JsonType) -> str:
    """Return the name of the type in Spark; a value that was always null, or an empty object, is a string."""
    if isinstance(kind, tuple):
        return f"ARRAY<{spark_type(kind[0])}>"
    if isinstance(kind, dict) and kind:
        return f"STRUCT<{', '.join(f'{quoted_if_needed(name)}: {spark_type(each)}' for name, each in kind.items())}>"
    return kind if isinstance(kind, str) and kind else _TEXT
