"""The header: what it says, which ones are refused, how batches are found and offsets assigned."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    RecordBatchBuilder,
    assign_offsets,
    iter_headers,
    parse_header,
    read_records,
    validate_batch,
)


def batch_of(count: int = 3, compression: str = "none") -> bytearray:
    builder = RecordBatchBuilder(compression)
    for i in range(count):
        builder.append(b"k", b"v" * 50, timestamp_ms=1000 + i)
    return bytearray(builder.build(9, 2, 40))


def test_header_has_the_fields_of_the_batch() -> None:
    batch = batch_of(compression="gzip")
    assign_offsets(batch, 100, 5)
    header = parse_header(b"before" + bytes(batch), 6)
    assert (header.base_offset, header.last_offset, header.next_offset, header.last_offset_delta) == (100, 102, 103, 2)
    assert (header.size_in_bytes, header.batch_length) == (len(batch), len(batch) - LOG_OVERHEAD)
    assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (1000, 1002, CREATE_TIME)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 40)
    assert (header.partition_leader_epoch, header.record_count, header.compression) == (5, 3, "gzip")
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (False, False, False)


@pytest.mark.parametrize(
    ("bit", "name"), [(0x10, "is_transactional"), (0x20, "is_control"), (0x40, "has_delete_horizon")]
)
def test_header_shows_attribute_when_its_bit_is_set(bit: int, name: str) -> None:
    header = parse_header(batch_of())._replace(attributes=bit)
    assert getattr(header, name) is True
    assert header.compression == "none"


def test_header_compression_raises_for_unknown_codec() -> None:
    header = parse_header(batch_of())._replace(attributes=7)
    with pytest.raises(TidelogError, match="compression id 7") as caught:
        _ = header.compression
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(
    ("position", "layout", "value", "text"),
    [
        (16, ">b", 1, "expected magic 2, found 1"),
        (8, ">i", 48, "batch length 48"),
        (8, ">i", -1, "batch length -1"),
        (0, ">q", -1, "base offset is negative"),
        (0, ">q", 2**63 - 3, "last offset delta 2"),
        (23, ">i", -1, "last offset delta -1"),
        (57, ">i", -1, "record count -1"),
    ],
)
def test_header_is_refused_with_impossible_field(position: int, layout: str, value: Any, text: str) -> None:
    batch = batch_of()
    struct.pack_into(layout, batch, position, value)
    with pytest.raises(CorruptRecordError, match=text):
        parse_header(batch)


@pytest.mark.parametrize("position", [-1, 1, 10_000])
def test_header_is_refused_when_short(position: int) -> None:
    with pytest.raises(CorruptRecordError, match="61 bytes"):
        parse_header(bytes(batch_of())[:HEADER_SIZE], position)


def test_iter_headers_yields_whole_batches_and_stops_before_torn_tail() -> None:
    batches = [batch_of(n) for n in (1, 4, 2)]
    buffer = b"".join(bytes(b) for b in batches)
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [position for position, _ in iter_headers(buffer)] == starts
    assert [header.record_count for _, header in iter_headers(buffer, starts[1])] == [4, 2]
    for cut in range(1, len(batches[2]) + 1):
        assert [position for position, _ in iter_headers(buffer[:-cut])] == starts[:2]


def test_assign_offsets_leaves_the_crc_for_create_time() -> None:
    batch = batch_of()
    before = parse_header(batch)
    assign_offsets(batch, 2**40, 17)
    after = validate_batch(batch)
    assert after == before._replace(base_offset=2**40, partition_leader_epoch=17)
    assert [r.offset for r in read_records(batch)] == [2**40, 2**40 + 1, 2**40 + 2]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_assign_offsets_sets_timestamp_type_and_crc_for_log_append_time(compression: str) -> None:
    batch = batch_of(compression=compression)
    assign_offsets(batch, 10, 1, log_append_time_ms=5555)
    header = validate_batch(batch)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (LOG_APPEND_TIME, 5555, 1000)
    assert header.compression == compression
    assert {(r.timestamp_ms, r.timestamp_type) for r in read_records(batch)} == {(5555, LOG_APPEND_TIME)}
