"""`Position`: the place in a table up to which its rows are read, and its form as an offset of Connect (pure).

A table's partition is ``{"protocol": "1", "table": "db.schema.table"}``, that of a query ``{"query": "query"}``. An
offset has ``incrementing``, ``timestamp`` in milliseconds, and ``timestamp_nanos``, the nanoseconds of its second, as
TimestampIncrementingOffset of Confluent's JDBC connector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_INCREMENTING, _TIMESTAMP, _NANOS = "incrementing", "timestamp", "timestamp_nanos"
_PROTOCOL, _TABLE, _QUERY = "protocol", "table", "query"
_US_PER_S = 1_000_000
_NS_PER_S = 1_000_000_000
_MAX_LONG = 2**63 - 1
_MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_MIN_TIMESTAMP_MS = -62_135_596_800_000
"""The first millisecond of the year 1."""


@dataclass(frozen=True, slots=True)
class Position:
    """The values of the last row that is read: microseconds since the epoch, and the incrementing column.

    A value is None where the mode has no such column, or before the first row.
    """

    timestamp_us: int | None = None
    incrementing: int | None = None

    def as_offset(self) -> dict[str, int]:
        """Return the offset that REST shows."""
        found: dict[str, int] = {}
        if self.incrementing is not None:
            found[_INCREMENTING] = self.incrementing
        if self.timestamp_us is not None:
            found[_TIMESTAMP] = self.timestamp_us // 1000
            found[_NANOS] = self.timestamp_us % _US_PER_S * 1000
        return found


START = Position()
"""The position before the first row."""


def table_partition(table: str) -> dict[str, str]:
    """Return the partition of a table, given as ``db.schema.table``."""
    return {_PROTOCOL: "1", _TABLE: table}


def query_partition() -> dict[str, str]:
    """Return the partition of the setting ``query``."""
    return {_QUERY: _QUERY}


def check_partition(partition: Mapping[str, Any]) -> None:
    """Check that a partition is that of a table or of the query.

    Raises:
        ValueError: it is neither.
    """
    if partition == query_partition():
        return
    if set(partition) == {_PROTOCOL, _TABLE} and partition[_PROTOCOL] == "1" and isinstance(partition[_TABLE], str):
        return
    raise ValueError(
        f'The partition of a JDBC source is {{"protocol": "1", "table": "db.schema.table"}} or {{"query": "query"}}, '
        f"not {dict(partition)}"
    )


def position_of(offset: Mapping[str, Any]) -> Position:
    """Return the position of an offset.

    Raises:
        ValueError: the offset has another key, or a value that is not a number within its limits.
    """
    unknown = sorted(set(offset) - {_INCREMENTING, _TIMESTAMP, _NANOS})
    if unknown:
        raise ValueError(
            f"The offset of a JDBC source has the keys {_INCREMENTING}, {_TIMESTAMP} and {_NANOS}, not {unknown[0]}"
        )
    nanos = _number(offset, _NANOS, 0, _NS_PER_S - 1)
    millis = _number(offset, _TIMESTAMP, _MIN_TIMESTAMP_MS, _MAX_TIMESTAMP_MS)
    incrementing = _number(offset, _INCREMENTING, -_MAX_LONG - 1, _MAX_LONG)
    if millis is None:
        if nanos is not None:
            raise ValueError(f"The offset has {_NANOS}, but no {_TIMESTAMP}")
        return Position(None, incrementing)
    if nanos is None:
        return Position(millis * 1000, incrementing)
    return Position(millis // 1000 * _US_PER_S + nanos // 1000, incrementing)


def _number(offset: Mapping[str, Any], key: str, least: int, most: int) -> int | None:
    value = offset.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"The value {value!r} of {key} must be a whole number from {least} to {most}")
    return value
