"""Walks over a batch's records that make no objects of them, and reading a batch in parts: both engines alike."""

from __future__ import annotations

import tracemalloc
from types import ModuleType
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import (
    HEADER_SIZE,
    RecordBatchBuilder,
    iter_records,
    parse_header,
    read_parts,
    read_records,
    reader,
)
from tidelog_foundation.records import _pure as pure
from tidelog_foundation.records.header import RecordBatchHeader, encode_batch


def _outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except CorruptRecordError:
        return "corrupt"


def _walks(
    engine: ModuleType, data: bytes, header: RecordBatchHeader, bounds: tuple[int, int], limit: int
) -> list[Any]:
    return [
        _outcome(engine.summarize_records, data, header),
        _outcome(engine.find_keyless, data, header, limit),
        _outcome(engine.find_outside, data, header, *bounds, limit),
        _outcome(engine.find_timestamp, data, header, *bounds),
        _outcome(engine.find_greatest, data, header, bounds[1]),
        _outcome(_in_parts, engine, data, header, bounds[1], limit),
    ]


def _in_parts(engine: ModuleType, data: bytes, header: RecordBatchHeader, start_offset: int, most: int) -> list[Any]:
    decoder, parts = engine.RecordDecoder(data, header, start_offset), []
    while part := decoder.read(most):
        parts.append([(r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers) for r in part])
    return parts


_TIMES = st.one_of(st.integers(-3, 9), st.sampled_from([2**63 - 1, -(2**63), 2**70, -(2**70)]))


@settings(max_examples=examples(300), deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.one_of(st.none(), st.just(b"k")), st.integers(-1, 8), st.booleans()), min_size=1, max_size=300
    ),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
    bounds=st.tuples(_TIMES, _TIMES),
    limit=st.integers(1, 200),
    attributes=st.sampled_from([0, 8]),
)
def test_engines_find_the_same_in_any_records(
    engine: ModuleType, rows: Any, changes: Any, bounds: tuple[int, int], limit: int, attributes: int
) -> None:
    builder = RecordBatchBuilder()
    for key, timestamp_ms, has_header in rows:
        builder.append(key, b"v", [("h", b"1")] if has_header else (), timestamp_ms)
    batch = builder.build()
    header, data = parse_header(batch)._replace(attributes=attributes), bytearray(batch[HEADER_SIZE:])
    for position, byte in changes:
        data[position % len(data)] = byte
    assert _walks(engine, bytes(data), header, bounds, limit) == _walks(pure, bytes(data), header, bounds, limit)


def test_records_are_found_by_what_they_have(engine: ModuleType) -> None:
    builder = RecordBatchBuilder()
    for key, timestamp_ms in ((b"k", 5), (None, 90), (b"k", -1), (None, 7), (b"k", 90)):
        builder.append(key, b"v", (), timestamp_ms)
    batch = builder.build(base_sequence=-1)
    header, data = parse_header(batch)._replace(base_offset=100), batch[HEADER_SIZE:]
    assert engine.find_keyless(data, header, 10) == [1, 3]
    assert engine.find_keyless(data, header, 1) == [1]
    assert engine.find_outside(data, header, 6, 80, 10) == [(0, 5), (1, 90), (4, 90)]
    assert engine.find_outside(data, header, 6, 80, 2) == [(0, 5), (1, 90)]
    assert engine.find_timestamp(data, header, 7, 0) == (101, 90)
    assert engine.find_timestamp(data, header, 7, 102) == (103, 7)
    assert engine.find_timestamp(data, header, 91, 0) is None
    assert engine.find_greatest(data, header, 0) == (101, 90)
    assert engine.find_greatest(data, header, 102) == (104, 90)
    assert engine.find_greatest(data, header, 105) is None


def _tiny_records(count: int, compression: int = 0) -> bytes:
    """Return a batch of records of 7 bytes: as many objects as bytes can become."""
    builder = RecordBatchBuilder("zstd" if compression else "none")
    for _ in range(count):
        builder.append(None, None, (), 5)
    return builder.build()


@pytest.mark.costly
def test_large_batch_is_read_in_parts_of_bounded_memory(engine: ModuleType) -> None:
    count = 8 * reader.RECORDS_AT_ONCE
    batch = _tiny_records(count, compression=1)
    plain = 10 * count
    tracemalloc.start()
    try:
        sizes = [len(part) for part in read_parts(batch, start_offset=10)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == count - 10
    assert max(sizes) == reader.RECORDS_AT_ONCE
    # The pure engine has the bytes twice; objects of all records would be another 200 bytes for each.
    assert peak < 3 * plain + 400 * reader.RECORDS_AT_ONCE, peak


@pytest.mark.parametrize(
    "count", [3, reader.RECORDS_AT_ONCE - 1, reader.RECORDS_AT_ONCE, 2 * reader.RECORDS_AT_ONCE + 1]
)
def test_no_record_of_a_batch_is_given_when_one_of_them_is_damaged(engine: ModuleType, count: int) -> None:
    batch = _tiny_records(count)
    assert list(iter_records(batch)) == read_records(batch)
    longer = encode_batch(parse_header(batch), batch[HEADER_SIZE:] + b"\0")
    with pytest.raises(CorruptRecordError, match="remain behind the last record"):
        next(iter_records(longer))
