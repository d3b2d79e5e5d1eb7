"""Batches on their way: the records stay as they are, and the header is the target's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import (
    CODECS,
    ControlType,
    RecordBatchBuilder,
    assign_offsets,
    control_batch,
    encode_batch,
    parse_header,
    read_records,
    validate_batch,
)
from tidelog_mirror.batches import MAX_SEQUENCE, Producer, SourceBatch, following_sequence, source_batches, stamped

HEADER = 61


def batch(offset: int, values: list[bytes], compression: str = "none", producer: int = -1) -> bytes:
    builder = RecordBatchBuilder(compression)
    for number, value in enumerate(values):
        builder.append(b"k", value, (("h", b"1"),), 1_000 + number)
    built = bytearray(builder.build() if producer < 0 else builder.build(producer, 0, 0, is_transactional=True))
    assign_offsets(built, offset, 3)
    return bytes(built)


def marker(offset: int, kind: ControlType, producer: int) -> bytes:
    built = bytearray(control_batch(kind, producer, 0, 0, 1_000))
    assign_offsets(built, offset, 3)
    return bytes(built)


def sent(found: SourceBatch, producer: Producer, sequence: int = 0) -> bytes:
    return stamped(found, producer, sequence) + bytes(found.records)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.sampled_from(CODECS), st.booleans())
def test_a_batch_keeps_its_records_as_bytes(values: list[bytes], compression: str, is_transactional: bool) -> None:
    original = batch(40, values, compression, 7 if is_transactional else -1)
    (found,), end = source_batches(original, None, 40)
    assert end == found.next_offset == 40 + len(values)
    for producer in (Producer(9, 2), Producer(9, 2, "mirror")):
        copy = sent(found, producer, 5)
        header = validate_batch(copy)
        assert copy[HEADER:] == original[HEADER:]
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 5)
        assert header.is_transactional is (producer.transactional_id is not None)
        assert [r.value for r in read_records(copy)] == values
        assert [r.timestamp_ms for r in read_records(copy)] == [r.timestamp_ms for r in read_records(original)]


def test_aborted_transactions_and_markers_are_left_out() -> None:
    records = b"".join(
        (
            batch(0, [b"aborted"], producer=1),
            batch(1, [b"kept"], producer=2),
            marker(2, ControlType.ABORT, 1),
            batch(3, [b"later"], producer=1),
            marker(4, ControlType.COMMIT, 2),
            marker(5, ControlType.COMMIT, 1),
        )
    )
    found, end = source_batches(records, [(1, 0)], 0)
    assert [each.base_offset for each in found] == [1, 3]
    assert end == 6


def test_a_fetch_of_markers_alone_advances_the_position() -> None:
    assert source_batches(marker(8, ControlType.COMMIT, 2), [], 8) == ([], 9)


def test_records_below_the_position_are_left_out() -> None:
    (found,), end = source_batches(batch(10, [b"a", b"b", b"c"], "zstd"), None, 12)
    assert (found.base_offset, found.next_offset, found.record_count, found.offsets, end) == (12, 13, 1, (12,), 13)
    assert [r.value for r in read_records(sent(found, Producer(1, 0)))] == [b"c"]
    assert source_batches(batch(10, [b"a"]), None, 11) == ([], 11)


def test_gaps_of_a_cleaner_are_closed_and_their_offsets_kept() -> None:
    whole = batch(0, [b"a", b"b", b"c"])
    header = parse_header(whole)
    kept = RecordBatchBuilder()
    kept.append(b"k", b"a", (), 1)
    with_gap = encode_batch(header._replace(record_count=1), kept.build()[HEADER:])
    (found,), end = source_batches(with_gap, None, 0)
    assert (found.offsets, found.record_count, found.next_offset, end) == ((0,), 1, 3, 3)
    assert validate_batch(sent(found, Producer(1, 0))).last_offset_delta == 0


def test_an_append_time_becomes_the_records_create_time() -> None:
    built = bytearray(batch(0, [b"a", b"b"]))
    assign_offsets(built, 0, 3, log_append_time_ms=5_000)
    (found,), _ = source_batches(bytes(built), None, 0)
    copy = sent(found, Producer(1, 0))
    assert [r.timestamp_ms for r in read_records(copy)] == [5_000, 5_000]
    assert validate_batch(copy).timestamp_type == 0


def test_a_damaged_batch_is_not_signed() -> None:
    damaged = bytearray(batch(0, [b"a" * 100]))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="the batch at offset 0 has the CRC"):
        source_batches(bytes(damaged), None, 0)


def test_sequences_wrap_as_kafkas_do() -> None:
    assert following_sequence(0, 3) == 3
    assert following_sequence(MAX_SEQUENCE, 1) == 0
    assert following_sequence(MAX_SEQUENCE - 1, 3) == 1
