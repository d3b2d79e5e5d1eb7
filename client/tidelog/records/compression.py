"""The codecs of a batch's records: none, gzip, snappy, lz4 and zstd, with bounded decompression.

Written are the forms that Kafka's own clients write: xerial-framed snappy with blocks of 32 KiB, and lz4 frames with
independent blocks of 64 KiB (KIP-57). Read are also raw snappy (librdkafka) and any lz4 frame. A compressed section
may grow to ``MAX_DECOMPRESSED_SIZE`` bytes and no further, and memory is taken only for what it grows to.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Callable

import cramjam

from tidelog.errors import ConfigError, CorruptRecordError, ErrorCode, error_for

MAX_DECOMPRESSED_SIZE = 256 * 1024 * 1024
"""What the records of one batch may take after decompression, in bytes; more is a CorruptRecordError."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The values of ``compression.type``; the index is the id in the attributes of a batch."""

UNCOMPRESSED = "uncompressed"
"""What ``compression.type`` of a topic calls ``none``."""

DEFAULT_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}
"""The codecs that have levels, with Kafka's defaults (KIP-390)."""

_LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
_GZIP_DEFAULT = 6
_LZ4_FAST, _LZ4_LEAST_HIGH, _LZ4_GREATEST_HIGH = 1, 3, 12

_SCRATCH_SIZE = 1536 * 1024
_threads = threading.local()
_OUTPUT_TOO_SMALL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")

_Bytes = bytes | bytearray | memoryview


def codec_id(name: str) -> int:
    """Return the id of a codec's name, ``UNCOMPRESSED`` included. Raises INVALID_CONFIG for any other name."""
    if name == UNCOMPRESSED:
        return 0
    if name not in CODECS:
        raise ConfigError(f"compression.type={name!r}: expected one of {', '.join(CODECS)}")
    return CODECS.index(name)


def codec_name(identifier: int) -> str:
    """Return the name of a codec's id. Raises UNSUPPORTED_COMPRESSION_TYPE for an id that Kafka has not given out."""
    if not 0 <= identifier < len(CODECS):
        raise error_for(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression id {identifier}: the known ones are 0 to 4"
        )
    return CODECS[identifier]


def check_level(name: str, level: int | None) -> int | None:
    """Return the level to compress with (KIP-390), the codec's default for None; None for codecs without levels.

    Raises:
        ConfigError: the codec has no levels, or the level is out of its range.
    """
    if name not in _LEVELS:
        if level is not None:
            raise ConfigError(f"compression level {level}: {name} has no levels")
        return None
    low, high = _LEVELS[name]
    if level is None or level == DEFAULT_LEVELS[name]:
        return DEFAULT_LEVELS[name]
    if not low <= level <= high:
        raise ConfigError(f"compression level {level}: {name} has levels {low} to {high}")
    return level


def compress(name: str, data: _Bytes, level: int | None) -> bytes:
    """Return the data in the form that Kafka's clients write for the codec; ``level`` is :func:`check_level`'s."""
    match name:
        case "gzip":
            return bytes(cramjam.gzip.compress(data, level=_GZIP_DEFAULT if level == -1 else level))
        case "snappy":
            return _xerial_compress(data)
        case "lz4":
            compressor = cramjam.lz4.Compressor(level=_lz4_level(level), content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return bytes(compressor.finish())
        case "zstd":
            return bytes(cramjam.zstd.compress(data, level=level))
        case _:
            return bytes(data)


def decompress(name: str, data: _Bytes) -> _Bytes:
    """Return the decompressed data, or the data itself for ``none``.

    Raises:
        CorruptRecordError: not data of that codec, or more than ``MAX_DECOMPRESSED_SIZE`` bytes.
    """
    match name:
        case "gzip":
            return _decompress(name, cramjam.gzip.decompress_into, data)
        case "snappy":
            return _snappy_decompress(data)
        case "lz4":
            return _decompress(name, cramjam.lz4.decompress_into, data)
        case "zstd":
            return _decompress(name, cramjam.zstd.decompress_into, data)
        case _:
            return data


def _lz4_level(level: int | None) -> int:
    """Return the library's level: Kafka's default, 9, is the fast compressor and every other one a high one."""
    if level is None or level == DEFAULT_LEVELS["lz4"]:
        return _LZ4_FAST
    return min(max(level, _LZ4_LEAST_HIGH), _LZ4_GREATEST_HIGH)


def _decompress(name: str, into: Callable[[_Bytes, memoryview], int], data: _Bytes) -> _Bytes:
    """Decompress what need not state its size: into memory of this thread, or where that is too small, into the limit.

    The limit is a mapping of which no more takes memory than is written. The thread's memory is kept, because that of
    a new batch each time would cost more than the decompression: the system clears it page by page.
    """
    if len(data) <= _SCRATCH_SIZE // 2:
        output = _scratch()
        size = _decompressed(name, into, data, output)
        if size is not None:
            return bytes(output[:size])
    output = memoryview(mmap.mmap(-1, MAX_DECOMPRESSED_SIZE))
    size = _decompressed(name, into, data, output)
    if size is None:
        raise _too_large(name, len(data))
    return output[:size]


def _decompressed(name: str, into: Callable[[_Bytes, memoryview], int], data: _Bytes, output: memoryview) -> int | None:
    """Return how many bytes were written, None where the output is too small."""
    try:
        return into(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_TOO_SMALL in str(error):
            return None
        raise CorruptRecordError(f"{name} data of {len(data)} bytes: {error}") from error


def _scratch() -> memoryview:
    if not hasattr(_threads, "scratch"):
        _threads.scratch = memoryview(bytearray(_SCRATCH_SIZE))
    return memoryview(_threads.scratch)[: min(_SCRATCH_SIZE, MAX_DECOMPRESSED_SIZE)]


def _snappy_decompress(data: _Bytes) -> memoryview:
    blocks = list(_xerial_blocks(data)) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else [data]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) if len(block) else 0 for block in blocks]
        if sum(sizes) > MAX_DECOMPRESSED_SIZE:
            raise _too_large("snappy", len(data))
        output = bytearray(sum(sizes))
        view, position = memoryview(output), 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, view[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"snappy data of {len(data)} bytes: {error}") from error
    return view


def _xerial_blocks(data: _Bytes) -> list[memoryview]:
    view, position, blocks = memoryview(data), len(_XERIAL_HEADER), []
    while position < len(view):
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptRecordError(f"snappy data of {len(view)} bytes: torn block length at byte {position}")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptRecordError(
                f"snappy data of {len(view)} bytes: block of {length} bytes at byte {position}, "
                f"{len(view) - position} remain"
            )
        blocks.append(view[position : position + length])
        position += length
    return blocks


def _xerial_compress(data: _Bytes) -> bytes:
    view, parts = memoryview(data), [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _too_large(name: str, compressed_size: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"{name} data of {compressed_size} bytes grows beyond the limit of {MAX_DECOMPRESSED_SIZE} bytes"
    )
