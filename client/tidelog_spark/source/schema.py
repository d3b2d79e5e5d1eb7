"""The columns of the source, which are those of Spark's own Kafka source, all of them nullable."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

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

from tidelog_foundation.errors import ConfigError

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
_HEADERS = StructField("headers", ArrayType(_HEADER))


def spark_schema(include_headers: bool, columns: Sequence[str] = ()) -> StructType:
    """Return the given columns, in any case, in their order; without any, all of them, with ``headers`` if included.

    Raises:
        ConfigError: a column does not exist (the nearest is named) or is given twice, or ``headers`` are included but
            not among the columns.
    """
    if not columns:
        return StructType([*_COLUMNS, _HEADERS] if include_headers else _COLUMNS)
    chosen = [_field(column) for column in columns]
    names = [field.name for field in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f'columns names "{name}" twice')
    if include_headers and _HEADERS not in chosen:
        raise ConfigError(f'includeHeaders is true, but columns is {", ".join(names)}; add "headers" to columns')
    return StructType(chosen)


def _field(column: str) -> StructField:
    known = {field.name.lower(): field for field in (*_COLUMNS, _HEADERS)}
    found = known.get(column.lower())
    if found is None:
        near = difflib.get_close_matches(column.lower(), known, n=1)
        hint = (
            f'did you mean "{known[near[0]].name}"?'
            if near
            else f"must be of {', '.join(f.name for f in known.values())}"
        )
        raise ConfigError(f'columns names "{column}", which is not a column of the source; {hint}')
    return found
