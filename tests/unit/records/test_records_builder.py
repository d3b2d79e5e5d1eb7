"""The builder: offsets, timestamps, sizes, and what it refuses without being changed."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import (
    HEADER_SIZE,
    RecordBatchBuilder,
    parse_header,
    read_records,
    record_size_upper_bound,
)
from tidelog_foundation.records import _pure as pure

MAX_INT64 = 2**63 - 1
contents = st.one_of(st.none(), st.binary(max_size=100))
headers = st.lists(st.tuples(st.text(max_size=9), contents), max_size=3)


def test_builder_counts_and_measures_as_records_are_appended(engine: ModuleType) -> None:
    builder = RecordBatchBuilder()
    assert (builder.count, builder.size_in_bytes) == (0, HEADER_SIZE)
    for i in range(3000):
        assert builder.append(None, b"v", timestamp_ms=i) == i
    assert builder.count == 3000
    assert builder.size_in_bytes == len(builder.build())


@settings(max_examples=examples(60), deadline=None)
@given(records=st.lists(st.tuples(contents, contents, headers), min_size=1, max_size=20))
def test_size_grows_by_no_more_than_the_upper_bound(engine: ModuleType, records: Any) -> None:
    builder = RecordBatchBuilder()
    for record in records:
        before = builder.size_in_bytes
        builder.append(*record, timestamp_ms=MAX_INT64 - before)
        assert 0 < builder.size_in_bytes - before <= record_size_upper_bound(*record)


@settings(max_examples=examples(100), deadline=None)
@given(
    records=st.lists(
        st.tuples(contents, contents, headers, st.one_of(st.integers(-1, MAX_INT64), st.sampled_from([-1, MAX_INT64]))),
        min_size=1,
        max_size=20,
    )
)
def test_engines_encode_equal_bytes(engine: ModuleType, records: Any) -> None:
    encoders = (engine.RecordEncoder(), pure.RecordEncoder())
    for record in records:
        assert encoders[0].append(*record) == encoders[1].append(*record)
    seen = [(bytes(e.records()), e.size, e.count, e.base_timestamp, e.max_timestamp) for e in encoders]
    assert seen[0] == seen[1]
    builder = RecordBatchBuilder()
    for record in records:
        builder.append(*record)
    assert [(r.key, r.value, list(r.headers), r.timestamp_ms) for r in read_records(builder.build())] == records


@pytest.mark.parametrize("size", [63, 64, 8191, 8192, 1048575, 1048576])
def test_records_are_read_at_the_edges_of_varint_lengths(engine: ModuleType, size: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k" * size, b"v" * size, [("h" * min(size, 9000), b"x" * size)], 5)
    (record,) = read_records(builder.build())
    assert (len(record.key or b""), len(record.value or b""), len(record.headers[0][1] or b"")) == (size, size, size)


def test_base_timestamp_is_the_first_and_max_the_greatest(engine: ModuleType) -> None:
    builder = RecordBatchBuilder()
    for timestamp_ms in (500, 900, 100):
        builder.append(None, None, timestamp_ms=timestamp_ms)
    header = parse_header(builder.build())
    assert (header.base_timestamp, header.max_timestamp, header.partition_leader_epoch) == (500, 900, -1)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (("k", None), "key: expected bytes or None, got str"),
        ((None, bytearray(b"v")), "value: expected bytes or None, got bytearray"),
        ((None, None, [(b"h", b"")]), "header key: expected str, got bytes"),
        ((None, None, [("h", "x")]), "header value: expected bytes or None, got str"),
        ((None, None, (), 1.5), "timestamp_ms: expected int, got float"),
        ((None, None, None), "None"),
        ((None, None, [("h",)]), "unpack|values"),
        ((None, None, [("\ud800", None)]), "surrogates"),
    ],
)
def test_append_changes_nothing_when_it_refuses_a_type(engine: ModuleType, record: Any, text: str) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"first", timestamp_ms=1)
    before = builder.build()
    with pytest.raises((TypeError, ValueError), match=text):
        builder.append(*record)
    assert builder.count == 1
    assert builder.build() == before


@pytest.mark.parametrize("timestamp_ms", [-2, MAX_INT64 + 1, -(2**70)])
def test_append_changes_nothing_when_the_timestamp_is_out_of_range(engine: ModuleType, timestamp_ms: int) -> None:
    builder = RecordBatchBuilder()
    with pytest.raises(TidelogError, match=f"timestamp {timestamp_ms}") as caught:
        builder.append(None, None, timestamp_ms=timestamp_ms)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert (builder.count, builder.size_in_bytes) == (0, HEADER_SIZE)


def test_append_writes_whole_records_when_the_headers_append_too(engine: ModuleType) -> None:
    builder = RecordBatchBuilder()

    class Meddling(list[tuple[str, bytes | None]]):
        def __iter__(self) -> Any:
            for i in range(200):
                builder.append(None, b"inner %d" % i, timestamp_ms=2)
            return super().__iter__()

    builder.append(None, b"outer", Meddling([("h", b"x")]), 1)
    assert builder.count == len(read_records(builder.build()))


def test_append_goes_on_after_build(engine: ModuleType) -> None:
    builder = RecordBatchBuilder("zstd")
    for i in range(2):
        builder.append(None, b"v" * 5000, timestamp_ms=i)
        assert builder.build() == builder.build()
        assert len(read_records(builder.build(1, 2, 3))) == i + 1


def test_build_is_refused_without_records(engine: ModuleType) -> None:
    with pytest.raises(TidelogError, match="at least one record"):
        RecordBatchBuilder().build()
