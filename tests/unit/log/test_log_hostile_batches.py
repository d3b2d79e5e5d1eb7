"""Batches that a client could send: none is stored that cannot be read, or takes memory for what it claims."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from timestamp_searches import find_by_timestamp, find_max_timestamp

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import MAX_EXPANSION, RecordBatchBuilder, encode_batch, parse_header, validate_batch
from tidelog_foundation.records.header import HEADER_SIZE
from tidelog_node.log import LogConfig, PartitionLog, RefusedRecordsError

NOW_MS = 1_000_000
COUNT = 300_000
MIB = 1024 * 1024
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@contextmanager
def _memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak} bytes at the peak"


def _log(disk, **changes):
    return PartitionLog.open(Path("/data/topic-0"), LogConfig(**changes), files=disk)


def _many_records(timestamp_ms: int) -> bytes:
    """Return a batch whose records take 3 MB decompressed, and 60 MB as objects."""
    builder = RecordBatchBuilder("zstd")
    builder.extend([None] * COUNT, None, timestamp_ms)
    return builder.build()


def _large_records(timestamp_ms: int) -> bytes:
    """Return a batch of some kilobytes whose records take 32 MB decompressed, and so much again as objects."""
    builder = RecordBatchBuilder("zstd")
    builder.extend([bytes(MIB // 4)] * 128, None, timestamp_ms)
    batch = builder.build()
    assert len(batch) < 5000
    return batch


@pytest.mark.parametrize("batch_of", [_many_records, _large_records])
@pytest.mark.parametrize(
    ("timestamp_ms", "changes", "code"),
    [
        (NOW_MS, {"cleanup_policy": ("compact",)}, ErrorCode.INVALID_RECORD),
        (5, {"message_timestamp_before_max_ms": 10}, ErrorCode.INVALID_TIMESTAMP),
        (9 * NOW_MS, {"message_timestamp_after_max_ms": 10}, ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=["without keys", "too old", "too new"],
)
def test_refusal_names_records_without_an_object_for_each(disk, batch_of, timestamp_ms, changes, code):
    log, batch = _log(disk, **changes), batch_of(timestamp_ms)
    with _memory_below(8 * MIB), pytest.raises(RefusedRecordsError) as caught:
        log.append_as_leader(batch, 0, NOW_MS)
    assert caught.value.code is code
    assert [record.batch_index for record in caught.value.records] == list(range(100))


@pytest.mark.parametrize("batch_of", [_many_records, _large_records])
def test_search_by_timestamp_makes_no_object_for_each_record(disk, batch_of):
    log = _log(disk)
    last_offset = log.append_as_leader(batch_of(NOW_MS), 0, NOW_MS).last_offset
    with _memory_below(8 * MIB):
        assert find_by_timestamp(log, NOW_MS).offset == 0
        assert find_max_timestamp(log).offset == 0
        log.advance_log_start_offset(last_offset)
        assert find_by_timestamp(log, NOW_MS).offset == last_offset
        assert find_max_timestamp(log).offset == last_offset


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("count", [1, 2**31 - 1])
def test_garbage_with_a_right_crc_is_not_stored(disk, codec, count):
    header = parse_header(_batch(b"v"))
    header = header._replace(attributes=codec, record_count=count, last_offset_delta=count - 1)
    log = _log(disk)
    with pytest.raises(TidelogError) as caught:
        log.append_as_leader(encode_batch(header, b"garbage"), 0, NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert (log.log_end_offset, log.size_in_bytes, log.segment_count) == (0, 0, 1)


def _batch(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(b"k", value, (), NOW_MS)
    return builder.build()


@pytest.mark.parametrize("topic_codec", ["producer", "uncompressed", "gzip"])
def test_batch_is_refused_when_it_decompresses_to_more_than_the_topic_takes(disk, topic_codec):
    log = _log(disk, max_message_bytes=1000, compression_type=topic_codec)
    builder = RecordBatchBuilder("zstd")
    builder.append(b"k", bytes(MAX_EXPANSION * 1000), (), NOW_MS)
    with pytest.raises(
        TidelogError, match=r"exceed 64000 bytes: at most 64 times max\.message\.bytes \(1000\)"
    ) as caught:
        log.append_as_leader(builder.build(), 0, NOW_MS)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0


@pytest.mark.parametrize("compression", ["none", *CODECS])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_max_timestamp_is_that_of_the_records_whatever_the_header_claims(disk, compression, kind):
    builder = RecordBatchBuilder(compression)
    for timestamp_ms in (500, NOW_MS, 700):
        builder.append(b"k", b"value " * 50, (), timestamp_ms)
    batch = builder.build()
    claim = encode_batch(parse_header(batch)._replace(max_timestamp=2**62), batch[HEADER_SIZE:])
    log = _log(disk)
    info = log.append_as_leader(claim if kind is bytes else memoryview(bytearray(claim)), 0, NOW_MS)
    assert info.max_timestamp == NOW_MS
    assert validate_batch(log.read(0, 1, 3)).max_timestamp == NOW_MS
    assert find_max_timestamp(log).offset == 1


def test_batch_that_is_too_large_in_the_codec_of_the_topic_is_refused_before_it_is_copied(disk):
    log, batch = _log(disk, compression_type="uncompressed"), _large_records(NOW_MS)
    with _memory_below(2 * MIB), pytest.raises(TidelogError, match="allows 1048588") as error:
        log.append_as_leader(batch, 0, NOW_MS)
    assert error.value.code is ErrorCode.MESSAGE_TOO_LARGE
