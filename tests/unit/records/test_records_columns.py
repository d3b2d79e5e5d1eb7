"""Whole columns into batches: the same records as one append each, whatever they come from."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pyarrow
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, read_records
from tidelog_foundation.records import _pure as pure
from tidelog_foundation.records.columns import BinaryColumn
from tidelog_foundation.records.sources import content_source

MAX_INT64 = 2**63 - 1
contents = st.one_of(st.none(), st.binary(max_size=200))
texts = st.one_of(st.none(), st.text(max_size=40))
timestamps = st.one_of(st.integers(-1, MAX_INT64), st.sampled_from([-1, 0, MAX_INT64]))


def appended(values: Any, keys: Any, times: Any, builder: RecordBatchBuilder | None = None) -> bytes:
    """Return the batch that single appends make."""
    builder = builder or RecordBatchBuilder()
    for row, value in enumerate(values):
        builder.append(keys[row] if keys else None, value, (), times if isinstance(times, int) else times[row])
    return builder.build()


def arrow_of(kind: Any, rows: list[Any], before: int, after: int) -> pyarrow.Array:
    """Return an array that is a slice of a longer one."""
    padding = [next((row for row in rows if row is not None), None)]
    return pyarrow.array(padding * before + rows + padding * after, kind)[before : before + len(rows)]


@settings(max_examples=examples(80), deadline=None)
@given(
    rows=st.lists(st.tuples(contents, contents, timestamps), min_size=1, max_size=30),
    first=st.lists(contents, max_size=2),
    has_keys=st.booleans(),
    time=st.one_of(st.none(), timestamps),
)
def test_columns_of_python_objects_make_the_bytes_of_single_appends(
    engine: ModuleType, rows: Any, first: Any, has_keys: bool, time: Any
) -> None:
    values, keys, each = (list(column) for column in zip(*rows, strict=True))
    builders = [RecordBatchBuilder(), RecordBatchBuilder()]
    for builder in builders:
        for content in first:
            builder.append(content, content, [("h", content)], 77)
    times = each if time is None else time
    expected = appended(values, keys if has_keys else None, times, builders[0])
    assert builders[1].extend(tuple(values), keys if has_keys else None, times) == len(values)
    assert builders[1].build() == expected
    assert (builders[1].count, builders[1].size_in_bytes) == (len(rows) + len(first), len(expected))


@pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string", "fixed"])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), before=st.integers(0, 12), after=st.integers(0, 3))
def test_arrow_columns_make_the_bytes_of_single_appends(
    engine: ModuleType, kind: str, data: Any, before: int, after: int
) -> None:
    if kind == "fixed":
        elements, arrow_type = st.one_of(st.none(), st.binary(min_size=5, max_size=5)), pyarrow.binary(5)
    else:
        elements, arrow_type = texts if "string" in kind else contents, getattr(pyarrow, kind)()
    rows = data.draw(st.lists(elements, min_size=1, max_size=30))
    keys = data.draw(st.lists(contents, min_size=len(rows), max_size=len(rows)))
    times = data.draw(st.lists(st.one_of(st.none(), timestamps), min_size=len(rows), max_size=len(rows)))
    plain = [row.encode() if isinstance(row, str) else row for row in rows]
    expected = appended(plain, keys, [-1 if time is None else time for time in times])
    builder = RecordBatchBuilder()
    column = arrow_of(arrow_type, rows, before, after)
    key_column = arrow_of(pyarrow.binary(), keys, after, before)
    time_type = data.draw(st.sampled_from([pyarrow.int64(), pyarrow.timestamp("ms"), pyarrow.timestamp("ms", "UTC")]))
    assert builder.extend(column, key_column, arrow_of(time_type, times, before, after)) == len(rows)
    assert builder.build() == expected


@settings(max_examples=examples(60), deadline=None)
@given(
    values=st.lists(contents, min_size=1, max_size=60),
    max_bytes=st.integers(-5, 600),
    as_arrow=st.booleans(),
)
def test_column_is_spread_over_batches_of_at_most_so_many_bytes(
    engine: ModuleType, values: Any, max_bytes: int, as_arrow: bool
) -> None:
    column = pyarrow.array(values, pyarrow.binary()) if as_arrow else values
    times = array("q", range(len(values)))
    row, seen = 0, []
    while row < len(values):
        builder = RecordBatchBuilder()
        following = builder.extend(column, None, times, start=row, max_bytes=max_bytes)
        assert following > row
        assert builder.count == following - row
        assert builder.size_in_bytes <= max_bytes or builder.count == 1
        if following < len(values):
            builder.append(None, values[following], (), following)
            assert builder.size_in_bytes > max_bytes, "the next record would have fitted"
        seen += [(r.value, r.timestamp_ms) for r in read_records(builder.build())][: following - row]
        row = following
    assert seen == list(zip(values, range(len(values)), strict=True))


def test_extend_takes_nothing_when_a_batch_in_the_making_is_full(engine: ModuleType) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"first")
    before = builder.build()
    assert builder.extend([b"x" * 100], max_bytes=len(before) + 50) == 0
    assert builder.extend([], [], []) == 0
    assert builder.extend([b"x"], start=1) == 1
    assert builder.build() == before


@pytest.mark.parametrize(
    "times",
    [
        [5, 6, 7],
        (5, 6, 7),
        array("q", [5, 6, 7]),
        memoryview(array("q", [4, 5, 6, 7]))[1:],
        pyarrow.array([5, 6, 7]),
        pyarrow.array([5, 6, 7]).to_numpy(),
    ],
    ids=["list", "tuple", "array", "memoryview", "arrow", "numpy"],
)
def test_timestamps_come_from_what_holds_int64(engine: ModuleType, times: Any) -> None:
    builder = RecordBatchBuilder()
    builder.extend([b"a", b"b", b"c"], None, times)
    assert [r.timestamp_ms for r in read_records(builder.build())] == [5, 6, 7]


REFUSALS: list[tuple[Callable[[], dict[str, Any]], Any, str]] = [
    (lambda: {"values": [b"a", "b"]}, TypeError, "value 1: expected bytes or None, got str"),
    (lambda: {"values": [b"a", b"b"], "keys": [b"k", bytearray(b"k")]}, TypeError, "key 1: expected bytes or None"),
    (lambda: {"values": [b"a"], "keys": []}, ValueError, "0 keys for 1 values"),
    (lambda: {"values": [b"a"], "timestamp_ms": [1, 2]}, ValueError, "2 timestamps for 1 values"),
    (lambda: {"values": [b"a"], "start": 2}, ValueError, "start 2 of 1 values"),
    (lambda: {"values": [b"a"], "start": -1}, ValueError, "start -1 of 1 values"),
    (lambda: {"values": [b"a"], "timestamp_ms": [1.5]}, TypeError, "float"),
    (lambda: {"values": [b"a"], "timestamp_ms": array("i", [1])}, TypeError, "buffer of int64, got format i"),
    (lambda: {"values": [b"a", b"b"], "timestamp_ms": [1, -2]}, TidelogError, "timestamp -2"),
    (lambda: {"values": [b"a"], "timestamp_ms": -2}, TidelogError, "timestamp -2"),
    (lambda: {"values": [b"a"], "timestamp_ms": [2**63]}, TidelogError, "timestamp: expected -1 to"),
    (lambda: {"values": pyarrow.array([1, 2])}, TypeError, "Arrow array of binary or string, got int64"),
    (lambda: {"values": pyarrow.array([b"a"], pyarrow.binary_view())}, TypeError, "got binary_view"),
    (lambda: {"values": pyarrow.chunked_array([[b"a"], [b"b"]])}, TypeError, "chunked array is not supported"),
    (lambda: {"values": [b"a"], "timestamp_ms": pyarrow.array([1], pyarrow.timestamp("us"))}, TypeError, "got timesta"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), REFUSALS)
def test_extend_changes_nothing_when_it_refuses(
    engine: ModuleType, arguments: Callable[[], dict[str, Any]], error: Any, text: str
) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"first", (), 9)
    before = builder.build()
    with pytest.raises(error, match=text):
        builder.extend(**arguments())
    assert builder.build() == before
    assert builder.count == 1


def test_extend_refuses_arrow_memory_that_is_not_there(engine: ModuleType) -> None:
    encoder = engine.RecordEncoder()
    offsets = memoryview(array("i", [0, 2, 9, 1]))
    for rows, text in ((2, "value 1: bytes 2 to 9 of 4"), (3, "value 1")):
        with pytest.raises(ValueError, match=text):
            encoder.extend(BinaryColumn(rows, None, 0, offsets[: rows + 1], 0, memoryview(b"abcd")), None, 5, 0, None)
    assert encoder.count == 0


def test_extend_refuses_more_than_two_gigabytes_without_a_limit(
    engine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = b"x" * (128 * 1024 * 1024)
    encoder = engine.RecordEncoder()
    if engine.__name__.endswith("_pure"):
        monkeypatch.setattr(engine, "MAX_RECORDS_SIZE", 1000)
        value = b"x" * 100
    encoder.append(None, b"first", (), 5)
    with pytest.raises(TidelogError) as caught:
        encoder.extend([value] * 20, None, 5, 0, None)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (encoder.count, encoder.size) == (1, len(encoder.records()))
    assert encoder.extend([value] * 20, None, 5, 0, HEADER_SIZE) == 0


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_engines_agree_on_any_column_and_limit(engine: ModuleType, data: Any) -> None:
    rows = data.draw(st.lists(st.tuples(contents, contents), min_size=1, max_size=12))
    sizes = st.sampled_from([0, 1, 61, 62, 63, 64, 100, 8100, 8190, 8191, 8192, 20_000])
    values = [None if value is None else value + b"v" * data.draw(sizes) for value, _ in rows]
    keys = data.draw(st.one_of(st.none(), st.just([key for _, key in rows])))
    times = data.draw(st.one_of(timestamps, st.lists(timestamps, min_size=len(rows), max_size=len(rows))))
    max_size = data.draw(st.one_of(st.none(), st.integers(-1, 60_000)))
    repeats = data.draw(st.sampled_from([1, 3, 20]))
    source = pyarrow.array(values, pyarrow.binary()) if data.draw(st.booleans()) else values
    encoders = (engine.RecordEncoder(), pure.RecordEncoder())
    each = times if isinstance(times, int) else memoryview(array("q", times))
    for start in [data.draw(st.integers(0, len(rows))) for _ in range(repeats)]:
        arguments = (content_source(source, "value"), keys, each, start, max_size)
        assert encoders[0].extend(*arguments) == encoders[1].extend(*arguments)
    seen = [(bytes(e.records()), e.size, e.count, e.base_timestamp, e.max_timestamp) for e in encoders]
    assert seen[0] == seen[1]
