"""Another codec for a batch: everything else stays."""

from __future__ import annotations

from typing import Any

import pytest
from recompression import recompress

from tidelog_foundation.errors import ConfigError, CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import (
    CODECS,
    HEADER_SIZE,
    ControlType,
    RecordBatchBuilder,
    assign_offsets,
    control_batch,
    encode_batch,
    parse_header,
    read_records,
    validate_batch,
)


def batch_of(compression: str, value: bytes = b"value " * 10) -> bytes:
    builder = RecordBatchBuilder(compression)
    for i in range(40):
        builder.append(b"key %d" % i, value, [("h", b"x"), ("n", None)], 1000 - i)
    batch = bytearray(builder.build(77, 4, 2**31 - 1, is_transactional=True))
    assign_offsets(batch, 2**40, 9)
    return bytes(batch)


def without_codec(batch: bytes) -> Any:
    header = parse_header(batch)
    return header._replace(attributes=header.attributes & ~7, batch_length=0, crc=0)


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", [*CODECS, "uncompressed"])
def test_batch_keeps_all_but_its_codec(source: str, target: str) -> None:
    batch = batch_of(source)
    changed = recompress(batch, target)
    header = validate_batch(changed)
    assert header.size_in_bytes == len(changed)
    assert header.compression == ("none" if target == "uncompressed" else target)
    assert without_codec(changed) == without_codec(batch)
    assert read_records(changed) == read_records(batch)
    assert recompress(recompress(changed, "none"), "uncompressed") == recompress(batch, "none")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batch_stays_byte_for_byte_when_it_has_the_codec(kind: Any) -> None:
    for codec in CODECS:
        level = {"gzip": 9, "lz4": 12, "zstd": 19}.get(codec)
        batch = batch_of(codec)
        assert recompress(kind(batch), codec, level) == batch
    assert recompress(kind(batch + batch), "zstd") == batch


def test_control_batch_stays_uncompressed() -> None:
    batch = control_batch(ControlType.ABORT, 1, 2, 3, 4)
    assert recompress(batch, "gzip") == batch


def test_log_append_time_and_delete_horizon_stay() -> None:
    batch = bytearray(batch_of("lz4"))
    assign_offsets(batch, 5, 6, log_append_time_ms=12345)
    horizon = encode_batch(
        parse_header(batch)._replace(attributes=parse_header(batch).attributes | 0x40), bytes(batch[HEADER_SIZE:])
    )
    header = parse_header(recompress(horizon, "zstd"))
    assert (header.timestamp_type, header.max_timestamp, header.has_delete_horizon) == (1, 12345, True)
    assert header.delete_horizon_ms == header.base_timestamp == 1000


def test_batch_gets_no_codec_when_that_would_not_make_it_smaller() -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"x", (), 5)
    batch = builder.build()
    assert recompress(batch, "gzip") == batch


def test_level_is_used_and_its_default_is_kafkas() -> None:
    batch = batch_of("none", b"".join(b"%d " % (i * i) for i in range(3000)))
    for codec, default, other in [("gzip", -1, 1), ("lz4", 9, 12), ("zstd", 3, 19)]:
        assert recompress(batch, codec, default) == recompress(batch, codec)
        assert len(recompress(batch, codec, other)) != len(recompress(batch, codec))
    assert len(recompress(batch, "gzip", 6)) == len(recompress(batch, "gzip"))
    for level in range(1, 18):
        assert read_records(recompress(batch, "lz4", level)) == read_records(batch)


def test_refusals_are_the_readers_and_the_builders() -> None:
    batch = batch_of("gzip")
    with pytest.raises(ConfigError, match="'producer'"):
        recompress(batch, "producer")
    with pytest.raises(ConfigError, match="level 10"):
        recompress(batch, "gzip", 10)
    with pytest.raises(CorruptRecordError, match="CRC"):
        recompress(batch[:-1] + b"\xff", "none")
    with pytest.raises(CorruptRecordError, match="gzip data"):
        recompress(encode_batch(parse_header(batch), b"junk" * 10), "none")
    with pytest.raises(TidelogError) as caught:
        recompress(encode_batch(parse_header(batch)._replace(attributes=7), b""), "none")
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
