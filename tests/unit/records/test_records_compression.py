"""The codecs: the forms Kafka writes and reads, levels, and the bound on decompression."""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
import zstandard
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import ConfigError, CorruptRecordError
from tidelog_foundation.records import CODECS, RecordBatchBuilder, compression, read_records
from tidelog_foundation.records.compression import OversizedRecordsError, check_level, compress, decompress

DATA = b"".join(b"record %d of many; " % i for i in range(20_000))
COMPRESSING = CODECS[1:]


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, len(DATA)])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_data_is_equal_after_a_round_trip(codec: str, size: int, kind: Any) -> None:
    packed = compress(codec, kind(DATA[:size]), check_level(codec, None))
    assert decompress(codec, kind(packed)) == DATA[:size]


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [DATA * 20, bytes(10_000_000), os.urandom(3_000_000)], ids=["text", "zeros", "random"])
def test_data_of_several_megabytes_is_equal_after_a_round_trip(codec: str, data: bytes) -> None:
    first = decompress(codec, compress(codec, data, check_level(codec, None)))
    second = decompress(codec, compress(codec, DATA, check_level(codec, None)))
    assert first == data
    assert second == DATA


def test_decompressed_data_stays_when_more_is_decompressed() -> None:
    for codec in COMPRESSING:
        first = decompress(codec, compress(codec, b"first" * 100, check_level(codec, None)))
        decompress(codec, compress(codec, b"other" * 100, check_level(codec, None)))
        assert first == b"first" * 100


def test_snappy_is_written_with_xerial_framing_and_read_raw() -> None:
    packed = compress("snappy", DATA, None)
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(DATA))) == DATA


def test_lz4_is_written_with_independent_blocks_and_read_with_linked_ones() -> None:
    flags = compress("lz4", DATA, 1)[4]
    assert flags >> 6 == 1, "version"
    assert flags & 0x20, "Kafka's readers refuse linked blocks"
    linked = bytes(cramjam.lz4.compress(DATA))
    assert not linked[4] & 0x20
    assert decompress("lz4", linked) == DATA


@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        ("gzip", lambda size: cramjam.gzip.compress(bytes(size))),
        ("lz4", lambda size: cramjam.lz4.compress(bytes(size))),
        ("zstd", lambda size: cramjam.zstd.compress(bytes(size), level=1)),
        ("snappy", lambda size: cramjam.snappy.compress_raw(bytes(size))),
        ("snappy", lambda size: compress("snappy", bytes(size), None)),
    ],
    ids=["gzip", "lz4", "zstd", "snappy raw", "snappy xerial"],
)
def test_data_is_corrupt_when_it_grows_beyond_the_limit(
    codec: str, bomb: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1024 * 1024
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED_SIZE", limit)
    assert decompress(codec, bytes(bomb(limit))) == bytes(limit)
    with pytest.raises(CorruptRecordError, match=f"{codec} data of .* beyond the limit of {limit} bytes"):
        decompress(codec, bytes(bomb(limit + 1)))


@pytest.mark.parametrize(
    "claim", [b"\xff\xff\xff\xff\x0f", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 6) + b"\xff\xff\xff\xff\x0fa"]
)
def test_snappy_is_corrupt_before_anything_is_allocated_when_it_claims_four_gigabytes(claim: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="claims to hold 4294967295"):
        decompress("snappy", claim)


def test_snappy_of_tiny_blocks_counts_for_the_time_that_it_takes() -> None:
    tiny = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", 1) + b"\0") * 2_000
    assert decompress("snappy", tiny) == b""
    with pytest.raises(OversizedRecordsError):
        decompress("snappy", tiny, 256 * 1024)


def test_snappy_takes_no_memory_for_what_its_bytes_cannot_hold() -> None:
    claim = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + struct.pack(">i", 5) * 2 + b"\x80\x80\x80\x32a"
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress("snappy", claim)
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"\x00", b"junk" * 30, b"\x82SNAPPY\0", b"\xff" * 64])
def test_data_is_corrupt_or_empty_when_it_is_not_of_the_codec(codec: str, data: bytes) -> None:
    try:
        assert decompress(codec, data) == b""
    except CorruptRecordError:
        return


@pytest.mark.parametrize("length", [0, -1, 7, 2**31 - 1])
def test_xerial_is_corrupt_when_a_block_length_is_impossible(length: int) -> None:
    with pytest.raises(CorruptRecordError, match=f"block of {length} bytes"):
        decompress("snappy", b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, length) + b"\1\0a")


@pytest.mark.parametrize("codec", COMPRESSING)
def test_batch_stays_uncompressed_when_compression_does_not_help(codec: str) -> None:
    builder = RecordBatchBuilder(codec)
    builder.append(None, b"x", timestamp_ms=1)
    batch = builder.build()
    assert len(batch) == builder.size_in_bytes
    assert batch == _uncompressed(b"x")
    assert read_records(batch)[0].value == b"x"


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("none", 1), ("snappy", 1)]
)
def test_builder_refuses_level_when_the_codec_has_no_such(codec: str, level: int) -> None:
    with pytest.raises(ConfigError, match=f"compression level {level}"):
        RecordBatchBuilder(codec, level)


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -5, 19)])
def test_level_changes_the_size(codec: str, low: int, high: int) -> None:
    sizes = []
    for level in (low, high):
        builder = RecordBatchBuilder(codec, level)
        builder.append(None, DATA[:100_000], timestamp_ms=1)
        batch = builder.build()
        assert read_records(batch)[0].value == DATA[:100_000]
        sizes.append(len(batch))
    assert sizes[0] != sizes[1]


def test_builder_refuses_unknown_codec() -> None:
    with pytest.raises(ConfigError, match="'brotli': expected one of none, gzip, snappy, lz4, zstd"):
        RecordBatchBuilder("brotli")


def _uncompressed(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, value, timestamp_ms=1)
    return builder.build()


def test_error_of_oversized_records_keeps_nothing_of_them_in_memory() -> None:
    data = compress("zstd", bytes(8 * 1024 * 1024), 3)
    with pytest.raises(OversizedRecordsError) as caught:
        decompress("zstd", data, 4 * 1024 * 1024)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.tb)]
    mappings = [found["mapping"] for found in frames if "mapping" in found]
    assert [mapping.closed for mapping in mappings] == [True]


def test_error_that_is_detached_refers_to_no_frame() -> None:
    with pytest.raises(CorruptRecordError) as caught:
        decompress("zstd", b"no frame")
    assert caught.value.__cause__ is not None
    error = caught.value.detached()
    assert (error.__traceback__, error.__cause__, error.__context__) == (None, None, None)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_other_threads_go_on_while_large_data_is_compressed(codec: str) -> None:
    data, turns, is_done = memoryview(bytes(32 * 1024 * 1024)), 0, False

    def count_turns() -> None:
        nonlocal turns
        while not is_done:
            turns += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    counter = threading.Thread(target=count_turns)
    counter.start()
    try:
        # More than once: a busy machine may give the other thread no time.
        for _ in range(20):
            before = turns
            compress(codec, data, check_level(codec, None))
            if turns - before > 10:
                return
        pytest.fail(f"no turns while {codec} holds the GIL")
    finally:
        is_done = True
        sys.setswitchinterval(interval)
        counter.join()


FRAMES = {
    "with its size": lambda data: zstandard.ZstdCompressor().compress(data),
    "without its size": lambda data: zstandard.ZstdCompressor(write_content_size=False).compress(data),
    "with a checksum": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
    "two": lambda data: zstandard.ZstdCompressor().compress(data) * 2,
    "behind one to skip": lambda data: b"\x50\x2a\x4d\x18\x03\0\0\0abc" + zstandard.ZstdCompressor().compress(data),
    "of a large window": lambda data: zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    ).compress(data),
}


@given(
    frame=st.sampled_from(list(FRAMES)),
    content=st.sampled_from([b"", b"a", DATA[:5_000], bytes(300_000), bytes(2_000_000)]),
    cut=st.integers(0, 40),
    added=st.binary(max_size=3),
    changed=st.none() | st.tuples(st.integers(0, 10_000), st.integers(0, 255)),
    limit=st.sampled_from([None, 1, 4_999, 5_000, 299_999, 300_000]),
)
@settings(max_examples=examples(300), deadline=None)
def test_zstd_is_decompressed_with_a_kept_context_as_without_one(
    frame: str, content: bytes, cut: int, added: bytes, changed: tuple[int, int] | None, limit: int | None
) -> None:
    data = bytearray(FRAMES[frame](content))
    if changed is not None:
        data[changed[0] % len(data)] = changed[1]
    data = data[: len(data) - cut // 2] + added

    def outcome() -> bytes | str:
        try:
            return bytes(decompress("zstd", bytes(data), limit))
        except CorruptRecordError as error:
            return error.message

    kept = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compression, "_zstd_context", lambda: None)
        assert kept == outcome()


@pytest.mark.parametrize("frame", ["with its size", "without its size", "with a checksum"])
def test_small_frame_of_zstd_needs_no_context_of_its_own(frame: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_decompress", lambda *_: pytest.fail("a context is made"))
    assert decompress("zstd", FRAMES[frame](DATA[:5_000])) == DATA[:5_000]
