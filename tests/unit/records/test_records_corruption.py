"""Whatever the bytes are: the result is the records that were written, or a CorruptRecordError."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import (
    CODECS,
    HEADER_SIZE,
    RecordBatchBuilder,
    check_records,
    inspect_produced,
    iter_headers,
    read_records,
    to_arrow,
    validate_batch,
)
from tidelog_foundation.records import _pure as pure
from tidelog_foundation.records.header import RecordBatchHeader


def batch_of(codec: str) -> bytes:
    builder = RecordBatchBuilder(codec)
    for i in range(12):
        builder.append(
            b"key %d" % i if i % 3 else None, b"value " * i if i % 4 else None, [("h", b"x"), ("n", None)][: i % 3], i
        )
    return builder.build()


def with_right_crc(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def contents(records: list[Any]) -> list[Any]:
    return [(r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("codec", CODECS)
def test_batch_is_refused_or_equal_when_any_byte_is_flipped(engine: ModuleType, codec: str) -> None:
    batch = batch_of(codec)
    expected = contents(read_records(batch))
    for position in range(len(batch)):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(batch)
            changed[position] ^= mask
            try:
                assert contents(read_records(changed)) == expected
            except CorruptRecordError:
                continue
            assert position < 8 or 12 <= position < 16, f"byte {position} is covered by the CRC"


@pytest.mark.parametrize("codec", CODECS)
def test_batch_is_refused_when_cut_anywhere(engine: ModuleType, codec: str) -> None:
    batch = batch_of(codec)
    for size in range(len(batch)):
        for read in (validate_batch, inspect_produced, read_records, check_records):
            with pytest.raises(CorruptRecordError):
                read(batch[:size])
        assert list(iter_headers(batch[:size])) == []
        assert to_arrow(batch[:size], 0, 100).num_rows == 0


@pytest.mark.costly
@pytest.mark.parametrize("codec", CODECS)
def test_records_never_fail_otherwise_when_changed_under_a_right_crc(engine: ModuleType, codec: str) -> None:
    batch = batch_of(codec)
    for position in range(23, len(batch)):
        for mask in (0x01, 0x02, 0x40, 0x80, 0xFF):
            changed = bytearray(batch)
            changed[position] ^= mask
            outcomes = [_outcome(read, with_right_crc(changed)) for read in (read_records, check_records, _arrow_rows)]
            assert len({outcome is None for outcome in outcomes}) == 1, f"readers disagree at byte {position}"


def _outcome(read: Callable[[bytearray], Any], batch: bytearray) -> Any:
    try:
        return read(batch) or True
    except CorruptRecordError:
        return None


def _arrow_rows(batch: bytearray) -> Any:
    return to_arrow(batch, -(2**63), 2**63 - 1, include_headers=True).validate(full=True)


def _header(count: int, base_timestamp: int = 0, attributes: int = 0) -> RecordBatchHeader:
    return RecordBatchHeader(5, 0, 0, 0, attributes, count + 3, base_timestamp, 77, -1, -1, -1, count)


def _records_or_none(engine: ModuleType, data: bytes, header: RecordBatchHeader) -> Any:
    try:
        records = engine.decode_records(data, header)
    except CorruptRecordError:
        return None
    return [(r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers) for r in records]


def _columns_or_none(engine: ModuleType, data: bytes, header: RecordBatchHeader) -> Any:
    decoder = engine.ColumnDecoder(True, 0)
    try:
        decoder.append(data, header, 6, 9)
    except CorruptRecordError:
        return None
    return [_plain(column) for column in decoder.finish()]


def _plain(column: Any) -> Any:
    if isinstance(column, tuple):
        return [_plain(part) for part in column]
    return list(column) if isinstance(column, bytes | memoryview) else column


@settings(max_examples=examples(400), deadline=None)
@given(
    data=st.one_of(
        st.binary(max_size=80),
        st.lists(
            st.sampled_from(
                [b"\x0c", b"\x0e\0\0\0\1\1\0", b"\x0c\0\0\0\1\1\0", b"\x0c\0\0\2\1\1\0", b"\0", b"\1", b"\2a"]
            )
        ).map(b"".join),
    ),
    count=st.integers(0, 5),
    base_timestamp=st.sampled_from([0, 2**63 - 1, -(2**63)]),
    attributes=st.sampled_from([0, 8]),
)
def test_engines_agree_on_any_bytes(
    engine: ModuleType, data: bytes, count: int, base_timestamp: int, attributes: int
) -> None:
    header = _header(count, base_timestamp, attributes)
    assert _records_or_none(engine, data, header) == _records_or_none(pure, data, header)
    assert _columns_or_none(engine, data, header) == _columns_or_none(pure, data, header)


@settings(max_examples=examples(200), deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3))
def test_engines_agree_on_records_with_changed_bytes(engine: ModuleType, changes: Any) -> None:
    data = bytearray(batch_of("none")[HEADER_SIZE:])
    for position, byte in changes:
        data[position % len(data)] = byte
    header = _header(12)
    assert _records_or_none(engine, bytes(data), header) == _records_or_none(pure, bytes(data), header)
    assert _columns_or_none(engine, bytes(data), header) == _columns_or_none(pure, bytes(data), header)


RECORD = b"\x0c\0\0\0\1\1\0"


@pytest.mark.parametrize(
    ("data", "count", "text"),
    [
        pytest.param(RECORD, 2**31 - 1, "too few", id="count"),
        pytest.param(b"\x7e" + RECORD[1:], 1, "past the end of the records", id="length"),
        pytest.param(b"\x01" + RECORD[1:], 1, "past the end of the records", id="negative length"),
        pytest.param(b"\xff" * 7, 1, "varint", id="overlong varint"),
        pytest.param(b"\x0c\0" + b"\xff" * 5, 1, "", id="overlong timestamp"),
        pytest.param(b"\x0c\0\0\0\x7e\1\0", 1, "", id="key"),
        pytest.param(b"\x0c\0\0\0\1\1\x7e", 1, "headers do not fit", id="header count"),
        pytest.param(b"\x0c\0\0\0\1\1\1", 1, "headers do not fit", id="negative header count"),
        pytest.param(b"\x10\0\0\0\1\1\2\1\1", 1, "headers do not fit", id="null header key"),
        pytest.param(b"\x0e\0\0\0\1\1\0\0", 1, "do not end where", id="trailing byte in record"),
        pytest.param(RECORD + b"\0", 1, "remain behind", id="trailing byte in batch"),
        pytest.param(RECORD + RECORD, 2, "offset delta", id="repeated offset"),
        pytest.param(b"\x0c\0\0\x7e\1\1\0", 1, "offset delta", id="offset beyond the last"),
        pytest.param(b"\x0c\0\0\1\1\1\0", 1, "offset delta", id="negative offset delta"),
    ],
)
def test_error_names_offset_and_reason_for_malformed_records(
    engine: ModuleType, data: bytes, count: int, text: str
) -> None:
    for read in (engine.decode_records, engine.summarize_records):
        with pytest.raises(CorruptRecordError, match=f"batch at offset 5: record . of {count}.*{text}"):
            read(data, _header(1)._replace(record_count=count))


@pytest.mark.parametrize("identifier", [5, 6, 7])
def test_unknown_codec_is_unsupported_compression_when_read_or_produced(engine: ModuleType, identifier: int) -> None:
    batch = bytearray(batch_of("none"))
    batch[22] = identifier
    validate_batch(with_right_crc(batch))
    for read in (read_records, inspect_produced, check_records):
        with pytest.raises(TidelogError, match=f"compression id {identifier}") as caught:
            read(batch)
        assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
