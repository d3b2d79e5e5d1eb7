"""A leader's validation of a client's batches, and the error of each refusal."""

from __future__ import annotations

import re
import struct
from types import ModuleType
from typing import Any

import pytest
from crc32c import crc32c

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import (
    CODECS,
    HEADER_SIZE,
    OversizedRecordsError,
    RecordBatchBuilder,
    RecordsSummary,
    assign_offsets,
    check_records,
    compression,
    encode_batch,
    inspect_produced,
    parse_header,
    summarize_records,
    validate_batch,
)


def batch_of(compression: str = "none", count: int = 3, **producer: int) -> bytearray:
    builder = RecordBatchBuilder(compression)
    for i in range(count):
        builder.append(b"k", b"v" * 50, timestamp_ms=1000 + i)
    return bytearray(builder.build(**producer))


def changed(batch: bytearray, position: int, layout: str, value: Any) -> bytearray:
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def refusal(batch: bytearray | bytes) -> tuple[ErrorCode, str]:
    with pytest.raises(TidelogError) as caught:
        inspect_produced(batch)
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_produced_batch_is_accepted_from_any_buffer(engine: ModuleType, kind: Any) -> None:
    assert inspect_produced(kind(batch_of())).header.record_count == 3


@pytest.mark.parametrize(
    ("position", "layout", "value", "text"),
    [
        (0, ">q", 4, "base offset of a client's batch is 0, found 4"),
        (57, ">i", 0, "holds no record"),
        (57, ">i", 2, "last offset delta 2 does not fit 2 records"),
        (23, ">i", 3, "last offset delta 3 does not fit 3 records"),
        (21, ">h", 0x20, "control"),
        (43, ">q", 7, "base sequence -1 with producer id 7"),
        (21, ">h", 0x10, "transactional batch has no producer id"),
        (21, ">h", 0x40, "delete horizon"),
    ],
)
def test_produced_batch_is_invalid_record_when_client_may_not_write_it(
    engine: ModuleType, position: int, layout: str, value: int, text: str
) -> None:
    code, message = refusal(changed(batch_of(), position, layout, value))
    assert code is ErrorCode.INVALID_RECORD
    assert text in message


def test_produced_batch_is_invalid_record_when_another_follows(engine: ModuleType) -> None:
    code, message = refusal(bytes(batch_of()) * 2)
    assert code is ErrorCode.INVALID_RECORD
    assert "one batch at a time" in message


def test_produced_batch_is_invalid_timestamp_when_it_claims_log_append_time(engine: ModuleType) -> None:
    batch = batch_of()
    assign_offsets(batch, 0, 0, log_append_time_ms=1)
    assert refusal(batch)[0] is ErrorCode.INVALID_TIMESTAMP


def test_produced_batch_is_corrupt_when_crc_differs(engine: ModuleType) -> None:
    batch = batch_of()
    batch[-2] ^= 1
    code, message = refusal(batch)
    assert code is ErrorCode.CORRUPT_MESSAGE
    assert "expected CRC 0x" in message
    assert "the bytes have 0x" in message


def test_produced_batch_is_invalid_record_when_records_do_not_decode_under_a_right_crc(engine: ModuleType) -> None:
    batch = changed(batch_of(), HEADER_SIZE, ">b", 0x7F)
    validate_batch(batch)
    code, message = refusal(batch)
    assert code is ErrorCode.INVALID_RECORD
    assert "record 0 of 3" in message


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize(("count", "text"), [(29, "remain behind"), (31, "runs past the end|too few|past the end")])
def test_produced_batch_is_invalid_record_when_it_holds_more_or_fewer_records_than_it_states(
    engine: ModuleType, compression: str, count: int, text: str
) -> None:
    batch = changed(batch_of(compression, count=30), 57, ">i", count)
    code, message = refusal(changed(batch, 23, ">i", count - 1))
    assert code is ErrorCode.INVALID_RECORD
    assert re.search(text, message), message


def test_produced_batch_is_invalid_record_when_its_offsets_are_not_consecutive(engine: ModuleType) -> None:
    batch = batch_of()
    second = batch.index(b"k", HEADER_SIZE) + 52
    offset_delta = batch.index(b"k", second) - 2
    assert batch[offset_delta] == 2, "the varint of 1"
    code, message = refusal(changed(batch, offset_delta, ">b", 0))
    assert code is ErrorCode.INVALID_RECORD
    assert "offset delta" in message


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_check_records_walks_the_records_of_compressed_batches(engine: ModuleType, compression: str) -> None:
    batch = batch_of(compression, count=30)
    assert check_records(batch).record_count == 30
    changed(batch, 57, ">i", 29)
    with pytest.raises(CorruptRecordError, match=r"batch at offset 0: record 28 of 29.*remain behind"):
        check_records(batch)


def test_batch_with_gaps_and_without_records_is_valid_on_disk(engine: ModuleType) -> None:
    batch = batch_of()[:HEADER_SIZE]
    struct.pack_into(">i", batch, 8, HEADER_SIZE - 12)
    changed(batch, 57, ">i", 0)
    assert validate_batch(batch).next_offset == 3
    assert check_records(batch).record_count == 0


def test_produced_batch_with_producer_is_accepted(engine: ModuleType) -> None:
    header = inspect_produced(batch_of(producer_id=7, producer_epoch=0, base_sequence=2**31 - 1)).header
    assert (header.producer_id, header.base_sequence) == (7, 2**31 - 1)


def records_of(rows: list[tuple[bytes | None, int]], compression: str = "none") -> bytes:
    builder = RecordBatchBuilder(compression)
    for key, timestamp_ms in rows:
        builder.append(key, b"value " * 20, (), timestamp_ms)
    return builder.build()


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(b"k", 5)], RecordsSummary(False, 5, 5)),
        ([(b"k", 50), (b"", 7), (b"k", -1), (b"k", 90), (b"k", 8)], RecordsSummary(False, 7, 90)),
        ([(b"k", -1), (None, -1), (b"k", -1)], RecordsSummary(True, -1, -1)),
        ([(None, -1), (b"k", 0)], RecordsSummary(True, 0, 0)),
    ],
)
def test_summary_tells_of_keys_and_timestamps(
    engine: ModuleType, rows: Any, expected: RecordsSummary, compression: str
) -> None:
    batch = records_of(rows, compression)
    assert summarize_records(b"before" + batch, 6) == expected
    produced = inspect_produced(batch)
    assert (produced.header, produced.summary) == (parse_header(batch), expected)


def test_summary_of_log_append_time_is_the_append_time(engine: ModuleType) -> None:
    batch = batch_of()
    assign_offsets(batch, 0, 0, log_append_time_ms=77)
    assert summarize_records(batch) == RecordsSummary(False, 77, 77)


def _shifted(batch: bytes, **times: int) -> bytes:
    """Return the batch with other times in its header; those of the records follow the base."""
    return encode_batch(parse_header(batch)._replace(**times), batch[HEADER_SIZE:])


@pytest.mark.parametrize("times", [{"base_timestamp": -2}, {"max_timestamp": -2}, {"base_timestamp": -(2**63)}])
def test_produced_batch_is_invalid_timestamp_when_its_header_has_one_below_minus_one(
    engine: ModuleType, times: dict[str, int]
) -> None:
    assert refusal(_shifted(records_of([(b"k", 5)]), **times))[0] is ErrorCode.INVALID_TIMESTAMP


def test_produced_batch_is_invalid_timestamp_when_a_record_has_one_below_minus_one(engine: ModuleType) -> None:
    code, message = refusal(_shifted(records_of([(b"k", 500), (b"k", 100)]), base_timestamp=300))
    assert code is ErrorCode.INVALID_TIMESTAMP
    assert "timestamp -100" in message
    wrapped = _shifted(records_of([(b"k", 0), (b"k", 2**62)]), base_timestamp=2**62 + 2**61, max_timestamp=0)
    assert refusal(wrapped)[0] is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2**31 - 1])
def test_produced_batch_is_invalid_record_when_its_compressed_records_are_not_there(
    engine: ModuleType, codec: int, count: int
) -> None:
    header = parse_header(records_of([(b"k", 1)]))
    header = header._replace(attributes=codec, record_count=count, last_offset_delta=count - 1)
    assert refusal(encode_batch(header, b"garbage"))[0] is ErrorCode.INVALID_RECORD
    few = compression.compress(CODECS[codec], records_of([(b"k", 1)])[HEADER_SIZE:], None if codec == 2 else 1)
    if count > 1:
        code, message = refusal(encode_batch(header, few))
        assert code is ErrorCode.INVALID_RECORD
        assert "too few for so many records" in message


def test_produced_batch_is_oversized_when_its_records_decompress_beyond_the_limit(engine: ModuleType) -> None:
    batch = records_of([(b"k" * 500, 1), (b"k" * 500, 2)], "gzip")
    size = len(records_of([(b"k" * 500, 1), (b"k" * 500, 2)])) - HEADER_SIZE
    assert inspect_produced(batch, size).summary.max_timestamp == 2
    with pytest.raises(OversizedRecordsError, match=f"limit of {size - 1} bytes"):
        inspect_produced(batch, size - 1)


def test_max_timestamp_is_put_right_with_the_offsets(engine: ModuleType) -> None:
    batch = bytearray(_shifted(records_of([(b"k", 500), (b"k", 100)]), max_timestamp=9_000))
    summary = inspect_produced(batch).summary
    assign_offsets(batch, 40, 3, max_timestamp=summary.max_timestamp)
    header = validate_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (40, 3, 500)
    before = bytes(batch)
    assign_offsets(batch, 40, 3, max_timestamp=500)
    assert batch == before
