"""Transaction markers: their bytes, and what is not one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as ForeignControlRecord
from aiokafka.record.default_records import DefaultRecordBatch

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import (
    HEADER_SIZE,
    ControlRecord,
    ControlType,
    RecordBatchBuilder,
    assign_offsets,
    control_batch,
    encode_batch,
    inspect_produced,
    parse_header,
    read_control,
    read_records,
    to_arrow,
)


def control_of(key: bytes | None, value: bytes | None, count: int = 1) -> bytes:
    """Return a control batch with any record in it."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(key, value, (), 5)
    batch = builder.build(7, 3, -1, is_transactional=True)
    return encode_batch(parse_header(batch)._replace(attributes=0x30), batch[HEADER_SIZE:])


@pytest.mark.parametrize("kind", list(ControlType))
def test_marker_is_read_as_it_was_written(engine: ModuleType, kind: ControlType) -> None:
    batch = bytearray(control_batch(kind, 2**40, 32_767, 17, 1234))
    assign_offsets(batch, 99, 6)
    assert read_control(b"before" + bytes(batch), 6) == ControlRecord(99, 1234, kind, 2**40, 32_767, 17)
    header = parse_header(batch)
    assert (header.is_control, header.is_transactional, header.compression) == (True, True, "none")
    assert (header.record_count, header.base_sequence, header.max_timestamp) == (1, -1, 1234)


@pytest.mark.parametrize(("kind", "expected"), [(ControlType.ABORT, ABORT_MARKER), (ControlType.COMMIT, COMMIT_MARKER)])
def test_marker_has_the_bytes_of_kafka(engine: ModuleType, kind: ControlType, expected: Any) -> None:
    batch = control_batch(kind, 1, 0, 258, 5)
    (record,) = read_records(batch)
    assert record.key == bytes([0, 0, 0, kind])
    assert record.value == b"\0\0\0\0\1\2"
    foreign = DefaultRecordBatch(batch)
    assert foreign.validate_crc()
    assert foreign.is_control_batch
    assert foreign.is_transactional
    (foreign_record,) = list(foreign)
    assert ForeignControlRecord.parse(foreign_record.key) == expected


def test_marker_is_hidden_from_columns_and_refused_from_clients(engine: ModuleType) -> None:
    batch = control_batch(ControlType.COMMIT, 1, 0, 0, 5)
    assert to_arrow(batch, 0, 10).num_rows == 0
    with pytest.raises(TidelogError, match="control") as caught:
        inspect_produced(batch)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_no_marker_is_read_from_data_from_an_emptied_batch_or_from_an_unknown_type(engine: ModuleType) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"\0\0\0\1", b"\0\0\0\0\0\1", (), 5)
    assert read_control(builder.build(7, 3, 0, is_transactional=True)) is None
    emptied = parse_header(control_of(None, None))._replace(record_count=0)
    assert read_control(encode_batch(emptied, b"")) is None
    for kind in (2, 3, 4, -1):
        assert read_control(control_of(b"\0\0" + kind.to_bytes(2, "big", signed=True), b"")) is None


def test_marker_of_a_newer_version_is_read_as_the_known_one(engine: ModuleType) -> None:
    marker = read_control(control_of(b"\0\1\0\1more", b"\0\2\0\0\0\x09more"))
    assert marker is not None
    assert (marker.kind, marker.coordinator_epoch) == (ControlType.COMMIT, 9)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (None, b"\0\0\0\0\0\1", "key has 0 bytes, expected 4"),
        (b"\0\0\0", b"\0\0\0\0\0\1", "key has 3 bytes"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\1", "version -1 of the key"),
        (b"\0\0\0\1", None, "value has 0 bytes, expected 6"),
        (b"\0\0\0\1", b"\0\0\0\0\0", "value has 5 bytes"),
        (b"\0\0\0\1", b"\xff\xfe\0\0\0\1", "version -2 of the value"),
    ],
)
def test_control_batch_is_corrupt_when_its_record_has_another_form(
    engine: ModuleType, key: bytes | None, value: bytes | None, text: str
) -> None:
    with pytest.raises(CorruptRecordError, match=f"control batch at offset 0: .*{text}"):
        read_control(control_of(key, value))


def test_control_batch_is_corrupt_when_it_has_two_records(engine: ModuleType) -> None:
    with pytest.raises(CorruptRecordError, match="2 records in a control batch"):
        read_control(control_of(b"\0\0\0\1", b"\0\0\0\0\0\1", count=2))


def test_batch_of_a_transaction_has_its_bit_and_needs_a_producer(engine: ModuleType) -> None:
    builder = RecordBatchBuilder("zstd")
    builder.append(None, b"v" * 1000, (), 5)
    header = inspect_produced(builder.build(7, 3, 0, is_transactional=True)).header
    assert (header.is_transactional, header.is_control, header.compression) == (True, False, "zstd")
    assert not inspect_produced(builder.build(7, 3, 0)).header.is_transactional
    with pytest.raises(TidelogError, match="transactional batch needs a producer id"):
        builder.build(is_transactional=True)
