"""The position of SparkSource: the largest value that was read of a column that grows, as JSON holds it.

A whole number is itself, a timestamp its microseconds and a date its days since 1970, and a text is itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidelog_connect.configuration import ConfigException

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Value = int | str
_VALUE = "incrementing"
_PARTS = frozenset(("format", "path", "table"))


def partition_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the partition of a source's offset: what it reads."""
    return {name: settings[name] for name in sorted(_PARTS) if settings[name]}


def offset_of(value: Value) -> dict[str, Value]:
    """Return the offset behind the rows up to a value."""
    return {_VALUE: value}


def value_of(offset: Mapping[str, Any] | None) -> Value | None:
    """Return the value of an offset, None for the begin.

    Raises:
        ValueError: it is no such offset.
    """
    if offset is None:
        return None
    value = offset.get(_VALUE)
    if set(offset) != {_VALUE} or isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"The offset should contain the single key '{_VALUE}' with a whole number or a text")
    return value


def check_partition(partition: Mapping[str, Any]) -> None:
    """Raise ValueError if a partition is not that of a source."""
    is_text = all(isinstance(each, str) for each in partition.values())
    if not partition or not set(partition) <= _PARTS or not is_text:
        raise ValueError("Partition objects should contain texts with the keys 'format' and 'path', or 'table'")


def growing_value(frame: DataFrame, name: str, last: Value | None) -> Column:
    """Return the values of a column that grows, as a position holds them.

    Raises:
        ConfigException: there is no such column, its type has no positions, or ``last`` is not of its type.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql import types

    found = next((each for each in frame.schema.fields if each.name == name), None)
    if found is None:
        raise ConfigException(f"There is no column {name}, but {', '.join(frame.columns)}")
    column = sql.col(f"`{name.replace('`', '``')}`")
    integral = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
    if isinstance(found.dataType, integral):
        value = column.cast("long")
    elif isinstance(found.dataType, types.TimestampType):
        value = sql.unix_micros(column)
    elif isinstance(found.dataType, types.DateType):
        value = sql.unix_date(column).cast("long")
    elif isinstance(found.dataType, types.StringType):
        value = column
    else:
        text = f"The column {name} is of type {found.dataType.simpleString()}"
        raise ConfigException(f"{text}: a column that grows is a whole number, timestamp, date or text")
    if last is not None and isinstance(last, str) != isinstance(found.dataType, types.StringType):
        text = f"The offset is {last!r}, but the column {name} is of type {found.dataType.simpleString()}"
        raise ConfigException(f"{text}: reset the offset")
    return value
