"""A leader's rules for a producer's batches, accepted or not, and their stored form, by the settings of the topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import LOG_APPEND_TIME, RecordBatchBuilder, parse_header, read_records, validate_batch
from tidelog_node.log import LogConfig, PartitionLog

DIRECTORY = Path("/data/topic-0")
NOW_MS = 1_000_000
CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


def _batch(*records, compression="none", producer=(-1, -1, -1)):
    builder = RecordBatchBuilder(compression)
    for key, timestamp in records:
        builder.append(key, b"value " * 50, (), timestamp)
    return builder.build(*producer)


def _log(disk, **changes):
    return PartitionLog.open(DIRECTORY, LogConfig(**changes), files=disk)


def _refused(log, batch, code, match):
    with pytest.raises(TidelogError, match=match) as caught:
        log.append_as_leader(batch, 0, NOW_MS)
    assert caught.value.code is code
    assert (log.log_end_offset, log.size_in_bytes, log.latest_epoch) == (0, 0, -1)


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4"])
@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
def test_compacted_topic_takes_no_record_without_a_key(disk, compression, policy):
    log = _log(disk, cleanup_policy=policy)
    batch = _batch((b"k", NOW_MS), (None, NOW_MS), compression=compression)
    _refused(log, batch, ErrorCode.INVALID_RECORD, "without a key")
    log.append_as_leader(_batch((b"k", NOW_MS), (b"", NOW_MS), compression=compression), 0, NOW_MS)
    assert log.log_end_offset == 2


def test_key_is_not_asked_for_without_compaction(disk):
    assert _log(disk).append_as_leader(_batch((None, NOW_MS)), 0, NOW_MS).first_offset == 0


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize(
    ("timestamps", "fault"),
    [
        ((NOW_MS, NOW_MS + 100), None),
        ((NOW_MS, NOW_MS + 101), "after.max.ms allows 1000000 . 100"),
        ((NOW_MS - 200, NOW_MS), None),
        ((NOW_MS, NOW_MS - 201, NOW_MS), "timestamp 999799: .*before.max.ms allows 1000000 - 200"),
        ((-1, -1), None),
    ],
)
def test_timestamps_are_limited_to_both_sides_of_now(disk, compression, timestamps, fault):
    log = _log(disk, message_timestamp_after_max_ms=100, message_timestamp_before_max_ms=200)
    batch = _batch(*((b"k", timestamp) for timestamp in timestamps), compression=compression)
    if fault is None:
        assert log.append_as_leader(batch, 0, NOW_MS).last_offset == len(timestamps) - 1
    else:
        _refused(log, batch, ErrorCode.INVALID_TIMESTAMP, fault)


def test_timestamps_of_producers_do_not_matter_with_the_time_of_the_append(disk):
    limits = {"message_timestamp_after_max_ms": 0, "message_timestamp_before_max_ms": 0}
    log = _log(disk, message_timestamp_type="LogAppendTime", **limits)
    log.append_as_leader(_batch((b"k", 5), (b"k", NOW_MS * 2)), 0, NOW_MS)
    stored = log.read(0, 10_000, 2)
    assert validate_batch(stored).timestamp_type == LOG_APPEND_TIME
    assert [record.timestamp_ms for record in read_records(stored)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("own", CODECS)
@pytest.mark.parametrize("theirs", CODECS)
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_batch_is_stored_in_the_topic_s_codec(disk, own, theirs, timestamp_type):
    log = _log(disk, compression_type=own, message_timestamp_type=timestamp_type)
    compression = "none" if theirs == "uncompressed" else theirs
    batch = _batch((b"a", NOW_MS), (b"b", NOW_MS - 5), compression=compression)
    info = log.append_as_leader(batch, 3, NOW_MS)
    stored = log.read(0, 10_000, 2)
    header = validate_batch(stored)
    assert header.compression == ("none" if own == "uncompressed" else own)
    assert [(record.offset, record.key) for record in read_records(stored)] == [(0, b"a"), (1, b"b")]
    assert (info.size_in_bytes, info.last_offset) == (len(stored), 1) == (log.size_in_bytes, 1)
    if own == theirs and timestamp_type == "CreateTime":
        assert stored[16:] == batch[16:]
    log.check_invariants()


def test_batch_keeps_its_bytes_with_the_producer_s_codec(disk):
    log = _log(disk)
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        batch = _batch((b"a", NOW_MS), compression=compression)
        offset = log.append_as_leader(batch, 0, NOW_MS).first_offset
        assert log.read(offset, 1, offset + 1)[16:] == batch[16:]


def test_size_limit_holds_for_the_batch_as_it_is_stored(disk):
    batch = _batch(*((b"k%d" % i, NOW_MS) for i in range(50)), compression="gzip")
    log = _log(disk, compression_type="uncompressed", max_message_bytes=5000)
    assert len(batch) < 5000
    _refused(log, batch, ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes allows 5000")


@pytest.mark.parametrize("changes", [{}, {"compression_type": "lz4"}, {"compression_type": "gzip"}])
def test_compressed_batch_is_refused_when_its_records_do_not_decode(disk, changes):
    """The CRC is right: only who decompresses the records sees that there are none."""
    good = bytearray(_batch((b"k", NOW_MS), compression="lz4"))
    good[-12:-8] = b"\xff" * 4
    good[17:21] = crc32c(bytes(good[21:])).to_bytes(4, "big")
    log = _log(disk, **changes)
    _refused(log, bytes(good), ErrorCode.INVALID_RECORD, "lz4 data")
    assert log.log_end_offset == 0


def test_settings_can_change_while_the_log_is_open(disk):
    log = _log(disk)
    log.append_as_leader(_batch((None, NOW_MS)), 0, NOW_MS)
    log.config = LogConfig(cleanup_policy=("compact",), compression_type="zstd")
    with pytest.raises(TidelogError, match="without a key"):
        log.append_as_leader(_batch((None, NOW_MS)), 0, NOW_MS)
    log.append_as_leader(_batch((b"k", NOW_MS)), 0, NOW_MS)
    assert parse_header(log.read(1, 1, 2)).compression == "zstd"
