"""The codecs of a batch's records: none, gzip, snappy, lz4 and zstd, with bounded decompression.

Written are the forms that Kafka's own clients write: xerial-framed snappy with blocks of 32 KiB, and lz4 frames with
independent blocks of 64 KiB (KIP-57). Read are also raw snappy (librdkafka) and any lz4 frame. A compressed section
may grow to ``MAX_DECOMPRESSED_SIZE`` bytes and no further, and memory is taken only for what it grows to.
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
"""The most bytes that the records of one batch may decompress to, wherever they are read; a leader takes fewer."""

MAX_EXPANSION = 64
"""A leader takes a batch that decompresses to at most so many times the topic's ``max.message.bytes``."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""The values of ``compression.type``; the index is the id in the attributes of a batch."""

UNCOMPRESSED = "uncompressed"
"""What ``compression.type`` of a topic calls ``none``."""

DEFAULT_LEVELS = {"gzip": -1, "lz4": 9, "zstd": 3}
"""The codecs that have levels, with Kafka's defaults (KIP-390)."""

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
"""What a block counts toward a limit at least: as many bytes are decompressed in the time that it takes."""
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
            return _lz4_compress(data, _lz4_level(level))
        case "zstd":
            return bytes(cramjam.zstd.compress(data, level=level))
        case _:
            return bytes(data)


class OversizedRecordsError(CorruptRecordError):
    """The records of a batch decompress to more than ``limit`` bytes; none beyond it were written anywhere."""

    def __init__(self, name: str, compressed_size: int, limit: int) -> None:
        super().__init__(f"{name} data of {compressed_size} bytes grows beyond the limit of {limit} bytes")
        self.limit = limit


def decompress(name: str, data: _Bytes, limit: int | None = None) -> _Bytes:
    """Return the decompressed data, or the data itself for ``none``.

    ``limit`` is the most bytes that it may become; ``MAX_DECOMPRESSED_SIZE`` holds as well.

    Raises:
        OversizedRecordsError: the data grows beyond the limit.
        CorruptRecordError: not data of that codec.
    """
    plain = decompress_briefly(name, data, limit)
    return bytes(plain) if isinstance(plain, memoryview) and plain.obj is _scratch() else plain


def decompress_briefly(name: str, data: _Bytes, limit: int | None = None) -> _Bytes:
    """Return what :func:`decompress` does, until the next decompression in this thread, which may overwrite it.

    For a walk over the records: small batches need no memory of their own.
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
    """Compress block by block: the library holds the GIL, and takes bytes alone, of which large data needs no copy."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        compressor.compress(bytes(view[start : start + _LZ4_BLOCK]))
    return bytes(compressor.finish())


def _lz4_level(level: int | None) -> int:
    """Return the library's level: Kafka's default, 9, is the fast compressor and every other one a high one."""
    if level is None or level == DEFAULT_LEVELS["lz4"]:
        return _LZ4_FAST
    return min(max(level, _LZ4_LEAST_HIGH), _LZ4_GREATEST_HIGH)


def _decompress(name: str, into: Callable[[_Bytes, memoryview], int], data: _Bytes, limit: int) -> memoryview:
    """Decompress what need not state its size: into memory of this thread, or where that is too small, into the limit.

    The limit is a mapping of which no more takes memory than is written. The thread's memory is kept, because that of
    a new batch each time would cost more than the decompression: the system clears it page by page.
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
        # The error may be kept, and its traceback would keep the memory.
        output.release()
        mapping.close()
        raise
    return output[:size]


def _decompressed(name: str, into: Callable[[_Bytes, memoryview], int], data: _Bytes, output: memoryview) -> int | None:
    """Return how many bytes were written, None where the output is too small."""
    try:
        return into(data, output)
    except cramjam.DecompressionError as error:
        if _OUTPUT_TOO_SMALL in str(error):
            return None
        raise CorruptRecordError(f"{name} data of {len(data)} bytes: {error}") from error


def _decompress_small_frame(data: _Bytes, limit: int) -> bytes | None:
    """Decompress one whole frame of zstd with this thread's context; None where the usual way has to decide.

    To make a context takes longer than to decompress a small batch.
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
        # Nothing may be all of it, or a frame to skip.
        return context.decompress(data, max_output_size=most) or None
    except zstandard.ZstdError:
        return None


def _is_one_frame(data: _Bytes, has_checksum: bool) -> bool:
    """Whether a frame of zstd ends with the data, by the headers of its blocks: the library ignores what follows."""
    import zstandard

    position, is_last = zstandard.frame_header_size(data), False
    while not is_last and position < len(data):
        header = int.from_bytes(data[position : position + 3], "little")
        is_last, has_one_byte = bool(header & 1), header >> 1 & 3 == 1
        position += 3 + (1 if has_one_byte else header >> 3)
    return is_last and position + 4 * has_checksum == len(data)


def _zstd_context() -> ZstdDecompressor | None:
    """Return this thread's context, None where the library is not installed. It lets no frame ask for much memory."""
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
    """Decompress blocks that state their sizes, of which none is believed that its bytes cannot have."""
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
