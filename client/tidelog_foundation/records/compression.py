"""The codecs for a batch's records: none, gzip, snappy, lz4 and zstd, with bounded decompression.

It writes the formats of Kafka's own clients: xerial-framed snappy with blocks of 32 KiB, and lz4 frames with
independent blocks of 64 KiB (KIP-57). It also reads raw snappy (librdkafka) and any lz4 frame. A compressed section may
grow to at most ``MAX_DECOMPRESSED_SIZE`` bytes, and uses only as much memory as its actual size.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import cramjam

from tidelog_foundation.errors import ConfigError, CorruptRecordError, ErrorCode, error_for

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

MAX_DECOMPRESSED_SIZE = 256 * 1024 * 1024
"""The most bytes to which one batch's records may decompress in any reader; a leader allows fewer."""

MAX_EXPANSION = 64
"""The most multiples of the topic's ``max.message.bytes`` to which a leader lets a batch decompress."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The values of ``compression.type``; the index is the id in a batch's attributes."""

UNCOMPRESSED = "uncompressed"
"""The name of ``none`` in a topic's ``compression.type``."""

DEFAULT_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}
"""The codecs with levels, and Kafka's defaults (KIP-390)."""

_LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (-131072, 22)}
_GZIP_DEFAULT = 6
_LZ4_BLOCK = 64 * 1024
_LZ4_FAST, _LZ4_LEAST_HIGH, _LZ4_GREATEST_HIGH = 1, 3, 12

_SMALL_FRAME = 64 * 1024
_SMALL_FRAME_CONTENT = 256 * 1024
_MAX_SMALL_WINDOW = 8 * 1024 * 1024

_SCRATCH_SIZE = 1536 * 1024
_threads = threading.local()
_OUTPUT_TOO_SMALL = "failed to write whole buffer"

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_SNAPPY_MAX_RATIO = 22
"""Three bytes of raw snappy copy at most 64."""
_SNAPPY_BLOCK_COST = 256
"""The least bytes that a block counts toward a limit: as many are decompressed in the time that a block takes."""
_BLOCK_LENGTH = struct.Struct(">i")

_Bytes = bytes | bytearray | memoryview


def codec_id(name: str) -> int:
    """Return the id of a codec, ``UNCOMPRESSED`` included. Raise INVALID_CONFIG for an unknown name."""
    if name == UNCOMPRESSED:
        return 0
    if name not in CODECS:
        raise ConfigError(f"compression.type={name!r}: expected one of {', '.join(CODECS)}")
    return CODECS.index(name)


def codec_name(identifier: int) -> str:
    """Return the name of a codec. Raise UNSUPPORTED_COMPRESSION_TYPE for an id that Kafka does not define."""
    if not 0 <= identifier < len(CODECS):
        raise error_for(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression id {identifier}: the known ones are 0 to 4"
        )
    return CODECS[identifier]


def check_level(name: str, level: int | None) -> int | None:
    """Return the level for compression (KIP-390), the codec's default for None; None for codecs without levels.

    Raises:
        ConfigError: the codec has no levels, or the level is out of range.
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
    """Return the compressed data in the format of Kafka's clients; ``level`` comes from :func:`check_level`."""
    match name:
        case "gzip":
            return bytes(cramjam.gzip.compress(data, level=_GZIP_DEFAULT if level == -1 else level))
        case "snappy":
            return _xerial_compress(data)
        case "lz4":
            return _lz4_compress(data, _lz4_level(level))
        case "zstd":
            return bytes(cramjam.zstd.compress(data, level=level))
        case _:
            return bytes(data)


class OversizedRecordsError(CorruptRecordError):
    """The error of records that decompress to more than ``limit`` bytes; no more than that were written."""

    def __init__(self, name: str, compressed_size: int, limit: int) -> None:
        super().__init__(f"{name} data of {compressed_size} bytes grows beyond the limit of {limit} bytes")
        self.limit = limit


def decompress(name: str, data: _Bytes, limit: int | None = None) -> _Bytes:
    """Return the decompressed data, or the data itself for ``none``.

    ``limit`` bounds the decompressed size; ``MAX_DECOMPRESSED_SIZE`` applies as well.

    Raises:
        OversizedRecordsError: the data exceeds the limit.
        CorruptRecordError: the data is not of that codec.
    """
    plain = decompress_briefly(name, data, limit)
    return bytes(plain) if isinstance(plain, memoryview) and plain.obj is _scratch() else plain


def decompress_briefly(name: str, data: _Bytes, limit: int | None = None) -> _Bytes:
    """Return the result of :func:`decompress`, valid until this thread's next decompression, which may overwrite it.

    It serves a walk over the records; small batches then need no memory of their own.
    """
    most = MAX_DECOMPRESSED_SIZE if limit is None else min(limit, MAX_DECOMPRESSED_SIZE)
    match name:
        case "gzip":
            return _decompress(name, cramjam.gzip.decompress_into, data, most)
        case "snappy":
            return _snappy_decompress(data, most)
        case "lz4":
            return _decompress(name, cramjam.lz4.decompress_into, data, most)
        case "zstd":
            plain = _decompress_small_frame(data, most)
            return _decompress(name, cramjam.zstd.decompress_into, data, most) if plain is None else plain
        case _:
            return data


def _lz4_compress(data: _Bytes, level: int) -> bytes:
    """Compress block by block: the library holds the GIL and takes only bytes, and large data then
    needs no full copy.
    """
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        compressor.compress(bytes(view[start : start + _LZ4_BLOCK]))
    return bytes(compressor.finish())


def _lz4_level(level: int | None) -> int:
    """Return the library's level: Kafka's default, 9, is the fast compressor, and all others are high ones."""
    if level is None or level == DEFAULT_LEVELS["lz4"]:
        return _LZ4_FAST
    return min(max(level, _LZ4_LEAST_HIGH), _LZ4_GREATEST_HIGH)


def _decompress(name: str, into: Callable[[_Bytes, memoryview], int], data: _Bytes, limit: int) -> memoryview:
    """Decompress data of unknown size into this thread's memory or, if that is too small, into a mapping of the limit.

    The mapping uses only as much memory as is written. The thread's memory is reused, because the system clears new
    memory page by page, which would cost more than the decompression.
    """
    if limit <= _SCRATCH_SIZE or len(data) <= _SCRATCH_SIZE // 2:
        output = memoryview(_scratch())[:limit]
        size = _decompressed(name, into, data, output)
        if size is not None:
            return output[:size]
        if limit <= _SCRATCH_SIZE:
            raise OversizedRecordsError(name, len(data), limit)
    mapping = mmap.mmap(-1, limit)
    output = memoryview(mapping)
    try:
        size = _decompressed(name, into, data, output)
        if size is None:
            raise OversizedRecordsError(name, len(data), limit)
    except CorruptRecordError:
        # A stored error's traceback would keep the memory.
        output.release()
        mapping.close()
        raise
    return output[:size]


def _decompressed(name: str, into: Callable[[_Bytes, memoryview], int], data: _Bytes, output: memoryview) -> int | None:
    """Return the number of bytes written, or None if the output is too small."""
    try:
        return into(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_TOO_SMALL in str(error):
            return None
        raise CorruptRecordError(f"{name} data of {len(data)} bytes: {error}") from error


def _decompress_small_frame(data: _Bytes, limit: int) -> bytes | None:
    """Decompress one whole zstd frame with this thread's context, or return None to leave it to the normal path.

    Creating a context takes longer than decompressing a small batch.
    """
    if len(data) > _SMALL_FRAME:
        return None
    context = _zstd_context()
    if context is None:
        return None
    import zstandard

    most = min(limit, _SMALL_FRAME_CONTENT)
    try:
        if not _is_one_frame(data, zstandard.get_frame_parameters(data).has_checksum):
            return None
        if zstandard.frame_content_size(data) > most:
            return None
        # An empty result may be all of the data, or a skippable frame.
        return context.decompress(data, max_output_size=most) or None
    except zstandard.ZstdError:
        return None


def _is_one_frame(data: _Bytes, has_checksum: bool) -> bool:
    """Return True if a zstd frame ends with the data, by its block headers; the library ignores trailing data."""
    import zstandard

    position, is_last = zstandard.frame_header_size(data), False
    while not is_last and position < len(data):
        header = int.from_bytes(data[position : position + 3], "little")
        is_last, has_one_byte = bool(header & 1), header >> 1 & 3 == 1
        position += 3 + (1 if has_one_byte else header >> 3)
    return is_last and position + 4 * has_checksum == len(data)


def _zstd_context() -> ZstdDecompressor | None:
    """Return this thread's context, which bounds a frame's memory, or None if the library is not installed."""
    if not hasattr(_threads, "zstd_context"):
        try:
            import zstandard
        except ImportError:
            _threads.zstd_context = None
        else:
            _threads.zstd_context = zstandard.ZstdDecompressor(max_window_size=_MAX_SMALL_WINDOW)
    context: ZstdDecompressor | None = _threads.zstd_context
    return context


def _scratch() -> bytearray:
    if not hasattr(_threads, "scratch"):
        _threads.scratch = bytearray(_SCRATCH_SIZE)
    scratch: bytearray = _threads.scratch
    return scratch


def _snappy_decompress(data: _Bytes, limit: int) -> memoryview:
    """Decompress blocks that state their sizes, and reject sizes that their bytes cannot reach."""
    try:
        total = cost = 0
        for block in _snappy_blocks(data):
            size = _snappy_size(block)
            total += size
            cost += max(size, _SNAPPY_BLOCK_COST)
            if cost > limit:
                raise OversizedRecordsError("snappy", len(data), limit)
        output = memoryview(_scratch() if total <= _SCRATCH_SIZE else mmap.mmap(-1, total))[:total]
        position = 0
        for block in _snappy_blocks(data):
            if len(block):
                position += cramjam.snappy.decompress_raw_into(block, output[position:])
    except cramjam.DecompressionError as error:
        raise CorruptRecordError(f"snappy data of {len(data)} bytes: {error}") from error
    return output[:position]


def _snappy_size(block: _Bytes) -> int:
    size = cramjam.snappy.decompress_raw_len(block) if len(block) else 0
    if size > _SNAPPY_MAX_RATIO * len(block):
        raise CorruptRecordError(f"snappy block of {len(block)} bytes: claims to hold {size}")
    return size


def _snappy_blocks(data: _Bytes) -> Iterator[_Bytes]:
    return _xerial_blocks(data) if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else iter((data,))


def _xerial_blocks(data: _Bytes) -> Iterator[memoryview]:
    view, position = memoryview(data), len(_XERIAL_HEADER)
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
        yield view[position : position + length]
        position += length


def _xerial_compress(data: _Bytes) -> bytes:
    view, parts = memoryview(data), [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)
