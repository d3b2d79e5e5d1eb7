"""Filters narrow the ranges of a batch query and never leave out a row that they keep."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog_spark.source.filters import RowBounds, bound_rows, skip_older
from tidelog_spark.source.offsets import OffsetRange, Offsets

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda own, value: own == value,
    EqualNullSafe: lambda own, value: own == value,
    GreaterThan: lambda own, value: own > value,
    GreaterThanOrEqual: lambda own, value: own >= value,
    LessThan: lambda own, value: own < value,
    LessThanOrEqual: lambda own, value: own <= value,
    In: lambda own, values: own in values,
    StringStartsWith: lambda own, value: own.startswith(value),
    StringEndsWith: lambda own, value: own.endswith(value),
    StringContains: lambda own, value: value in own,
}


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int

    def of(self, column: str) -> object:
        """Return a column as Spark compares it."""
        return EPOCH + timedelta(milliseconds=self.timestamp_ms) if column == "timestamp" else getattr(self, column)


def keeps(kept_by: Filter, row: Row) -> bool:
    match kept_by:
        case Not():
            return not keeps(kept_by.child, row)
        case IsNotNull():
            return True
        case IsNull():
            return False
        case _:
            return COMPARISONS[type(kept_by)](row.of(kept_by.attribute[0]), kept_by.value)


def read(filters: list[Filter], rows: list[Row], planned: list[OffsetRange]) -> tuple[list[Row], list[Filter]]:
    """Return the rows that a reader with these filters reads, and the filters that Spark evaluates on them."""
    bounds, left = bound_rows(filters)
    ranges = bounds.narrow(planned)
    if bounds.since_ms is not None:
        ranges = skip_older(ranges, {key: first_since(rows, key, bounds.since_ms) for key in keys_of(ranges)})
    return [row for row in rows if any(is_in(row, each) for each in ranges)], left


def is_in(row: Row, planned: OffsetRange) -> bool:
    return row[:2] == (planned.topic, planned.partition) and planned.start_offset <= row.offset < planned.end_offset


def keys_of(ranges: list[OffsetRange]) -> set[tuple[str, int]]:
    return {(each.topic, each.partition) for each in ranges}


def first_since(rows: list[Row], key: tuple[str, int], since_ms: int) -> int:
    """Return what ListOffsets answers."""
    return min((row.offset for row in rows if row[:2] == key and row.timestamp_ms >= since_ms), default=-1)


MOMENTS = st.integers(-3_000, 12_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["t", "tu", "u", "x"]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-2, 14),
    "timestamp": MOMENTS,
}
ORDERED = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
TEXT = [StringStartsWith, StringEndsWith, StringContains]


@st.composite
def a_filter(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(list(VALUES)))
    kind = draw(st.sampled_from([*ORDERED, In, IsNotNull, IsNull, *(TEXT if column == "topic" else ())]))
    if kind in (IsNotNull, IsNull):
        made = kind((column,))
    elif kind is In:
        made = In((column,), tuple(draw(st.lists(VALUES[column], min_size=1, max_size=4))))
    else:
        made = kind((column,), draw(VALUES[column]))
    return Not(made) if draw(st.booleans()) else made


@st.composite
def a_log(draw: st.DrawFn) -> list[Row]:
    """Partitions with gaps, as compaction leaves them, and timestamps in any order."""
    offsets = st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 9)), max_size=8, unique_by=lambda each: each[0])
    return [
        Row(topic, partition, offset, timestamp)
        for topic, partition in (("t", 0), ("t", 1), ("u", 0), ("u", 2))
        for offset, timestamp in sorted(draw(offsets))
    ]


@given(a_log(), st.lists(a_filter(), min_size=1, max_size=4))
@settings(max_examples=examples(120), deadline=None)
def test_pushed_filters_keep_exactly_the_rows_that_the_query_keeps(rows: list[Row], filters: list[Filter]) -> None:
    planned = [OffsetRange(topic, partition, 2, 13) for topic, partition in {row[:2] for row in rows}]
    fetched, left = read(filters, rows, planned)
    wanted = [row for row in rows if row.offset >= 2 and all(keeps(each, row) for each in filters)]
    assert [row for row in fetched if all(keeps(each, row) for each in left)] == wanted
    assert all(any(each is one for one in filters) for each in left), "Spark compares the filters by identity"


OUT_OF_ORDER = [Row("t", 0, offset, ms) for offset, ms in enumerate([5, 1, 9, 3, 8, 2])]


@pytest.mark.parametrize(
    ("filters", "fetched"),
    [
        ([EqualTo(("offset",), 3)], [3]),
        ([In(("offset",), (1, 4))], [1, 2, 3, 4]),
        ([GreaterThan(("offset",), 1), LessThanOrEqual(("offset",), 3)], [2, 3]),
        ([LessThan(("offset",), 1), GreaterThan(("offset",), 4)], []),
        ([EqualTo(("partition",), 1)], []),
        ([Not(StringStartsWith(("topic",), "u"))], [0, 1, 2, 3, 4, 5]),
        ([GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=6))], [2, 3, 4, 5]),
        ([GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=9))], []),
        ([EqualTo(("timestamp",), EPOCH + timedelta(milliseconds=2))], [0, 1, 2, 3, 4, 5]),
        ([LessThan(("timestamp",), EPOCH + timedelta(milliseconds=3))], [0, 1, 2, 3, 4, 5]),
        ([EqualTo(("value",), b"x")], [0, 1, 2, 3, 4, 5]),
        ([EqualTo(("offset", "field"), 3)], [0, 1, 2, 3, 4, 5]),
        ([EqualTo(("offset",), None)], [0, 1, 2, 3, 4, 5]),
        ([GreaterThan(("timestamp",), datetime(1980, 1, 1))], [0, 1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_filters_leave_out_only_offsets_that_cannot_match(filters: list[Filter], fetched: list[int]) -> None:
    rows, _ = read(filters, OUT_OF_ORDER, [OffsetRange("t", 0, 0, 6)])
    assert [row.offset for row in rows] == fetched


def test_exact_filters_are_not_evaluated_again() -> None:
    exact: list[Filter] = [
        IsNotNull(("offset",)),
        EqualTo(("partition",), 1),
        Not(In(("topic",), ("t",))),
        GreaterThan(("offset",), 1),
    ]
    assert bound_rows(exact)[1] == []


def test_lower_bound_of_timestamps_rounds_to_the_first_millisecond_that_fulfils_it() -> None:
    at = EPOCH + timedelta(microseconds=5_001)
    assert bound_rows([GreaterThanOrEqual(("timestamp",), at)])[0].since_ms == 6
    assert bound_rows([GreaterThan(("timestamp",), at)])[0].since_ms == 6
    assert bound_rows([GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=5))])[0].since_ms == 6
    before = EPOCH - timedelta(milliseconds=2)
    assert bound_rows([GreaterThanOrEqual(("timestamp",), before)])[0] == RowBounds(), (
        "-2 means earliest in ListOffsets"
    )


def test_partition_without_newer_records_is_not_read() -> None:
    found: Offsets = {("t", 0): -1, ("t", 1): 4, ("t", 2): 9}
    ranges = [OffsetRange("t", partition, 2, 9) for partition in range(3)]
    assert skip_older(ranges, found) == [OffsetRange("t", 1, 4, 9)]
