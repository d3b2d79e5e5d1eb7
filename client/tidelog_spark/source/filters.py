"""Filters of a batch query that narrow the planned ranges. Pure.

Spark passes the conjuncts of a query's filter. One on ``topic`` or ``partition`` selects whole partitions, one on
``offset`` bounds their ranges, and one on ``timestamp`` may move their starts. Rules:

- No row that all filters keep is left out. A conjunct that the ranges fulfil exactly is not evaluated again by Spark;
  all others are.
- A lower bound on ``timestamp`` skips the offsets before the first record with this timestamp or a later one, which
  ListOffsets finds: all records before that record are older, whatever their order.
- An upper bound on ``timestamp`` skips nothing. Producers set timestamps in any order, and LogAppendTime goes back when
  a leader with a slower clock takes over, so records after the first later one may still be older.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog_spark.source.offsets import OffsetRange, Offsets

NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
"""The columns without nulls, of which every row fulfils IsNotNull."""

_KINDS: Mapping[str, type] = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_COMPARISONS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda own, values: own in values,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of one column with values of its own type: one value, or several of In. ``Not`` negates it."""

    column: str
    kind: type[Filter]
    values: tuple[Any, ...]
    is_negated: bool

    def holds(self, own: object) -> bool:
        """Return whether a row with this value in the column fulfils the comparison."""
        given = self.values if self.kind is In else self.values[0]
        return _COMPARISONS[self.kind](own, given) is not self.is_negated


@dataclass(frozen=True, slots=True)
class RowBounds:
    """The bounds that filters put on the rows of a query.

    ``selections`` compare topics and partitions. Offsets lie in [first_offset, end_offset), without a limit if
    ``end_offset`` is None. Timestamps are ``since_ms`` or later, if it is not None; it is never negative.
    """

    selections: tuple[Comparison, ...] = ()
    first_offset: int = 0
    end_offset: int | None = None
    since_ms: int | None = None

    def narrow(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of ``ranges`` that lie in the bounds, but for that on timestamps."""
        chosen = [self._cut(planned) for planned in ranges if self._selects(planned)]
        return [planned for planned in chosen if planned.size > 0]

    def _selects(self, planned: OffsetRange) -> bool:
        own = {"topic": planned.topic, "partition": planned.partition}
        return all(chosen.holds(own[chosen.column]) for chosen in self.selections)

    def _cut(self, planned: OffsetRange) -> OffsetRange:
        end = planned.end_offset if self.end_offset is None else min(planned.end_offset, self.end_offset)
        return replace(planned, start_offset=max(planned.start_offset, self.first_offset), end_offset=end)


def skip_older(ranges: Sequence[OffsetRange], found: Offsets) -> list[OffsetRange]:
    """Return the parts of ``ranges`` from the offsets that a search by timestamp has found on.

    The search must be later than the ends of the ranges. -1 means that all records up to these are older.
    """
    positions = [(planned, found[planned.topic, planned.partition]) for planned in ranges]
    later = [
        replace(planned, start_offset=max(planned.start_offset, offset)) for planned, offset in positions if offset >= 0
    ]
    return [planned for planned in later if planned.size > 0]


def bound_rows(filters: Sequence[Filter]) -> tuple[RowBounds, list[Filter]]:
    """Return the bounds that all ``filters`` together put on rows, and the filters that Spark still has to evaluate."""
    bounds, left = RowBounds(), list[Filter]()
    for given in filters:
        bounds, is_exact = _add(bounds, given)
        if not is_exact:
            left.append(given)
    return bounds, left


def _add(bounds: RowBounds, given: Filter) -> tuple[RowBounds, bool]:
    """Return the bounds with one more filter, and whether they fulfil it exactly."""
    if isinstance(given, IsNotNull):
        return bounds, _column(given) in NEVER_NULL
    compared = _comparison(given)
    if compared is None:
        return bounds, False
    if compared.column == "offset":
        return _add_offset(bounds, compared)
    if compared.column == "timestamp":
        return _add_timestamp(bounds, compared), False
    return replace(bounds, selections=(*bounds.selections, compared)), True


def _add_offset(bounds: RowBounds, compared: Comparison) -> tuple[RowBounds, bool]:
    if compared.is_negated:
        return bounds, False
    first, end = _offsets(compared.kind, min(compared.values), max(compared.values))
    ends = [offset for offset in (bounds.end_offset, end) if offset is not None]
    together = replace(bounds, first_offset=max(bounds.first_offset, first), end_offset=min(ends, default=None))
    return together, compared.kind is not In


def _offsets(kind: type[Filter], low: int, high: int) -> tuple[int, int | None]:
    """Return the offsets that can fulfil a comparison with values from ``low`` to ``high``."""
    if kind is GreaterThan:
        return low + 1, None
    if kind is GreaterThanOrEqual:
        return low, None
    if kind is LessThan:
        return 0, high
    return (0 if kind is LessThanOrEqual else low), high + 1


def _add_timestamp(bounds: RowBounds, compared: Comparison) -> RowBounds:
    is_upper = compared.kind in (LessThan, LessThanOrEqual)
    if is_upper or compared.is_negated or any(value.tzinfo is None for value in compared.values):
        return bounds
    micros = min((value - _EPOCH) // _MICROSECOND for value in compared.values)
    # Records have whole milliseconds: the first that is not older, or with GreaterThan the first that is newer.
    since_ms = micros // 1000 + 1 if compared.kind is GreaterThan else -(-micros // 1000)
    # Negative timestamps have meanings of their own in ListOffsets.
    return bounds if since_ms < 0 else replace(bounds, since_ms=max(since_ms, bounds.since_ms or 0))


def _comparison(given: Filter) -> Comparison | None:
    """Return a filter as a comparison, or None if it is none, or of a column that bounds nothing."""
    plain = given.child if isinstance(given, Not) else given
    column = _column(plain)
    if type(plain) not in _COMPARISONS or column not in _KINDS:
        return None
    value: Any = getattr(plain, "value", ())
    values = tuple(value) if isinstance(plain, In) else (value,)
    if not values or any(type(value) is not _KINDS[column] for value in values):
        return None
    return Comparison(column, type(plain), values, given is not plain)


def _column(plain: Filter) -> str:
    """Return the column of a filter, or an empty string for a field of a struct."""
    path: tuple[str, ...] = getattr(plain, "attribute", ())
    return path[0] if len(path) == 1 else ""
