"""The conversion of a batch to another codec, by which a leader applies a topic's ``compression.type``."""

from __future__ import annotations

from tidelog_foundation.records.compression import CODECS, check_level, codec_id, compress, decompress_briefly
from tidelog_foundation.records.header import COMPRESSION_MASK, Buffer, RecordBatchHeader, encode_batch
from tidelog_foundation.records.validation import record_section, validate_batch


def recompress(batch: Buffer, compression: str, level: int | None = None) -> bytes:
    """Return the one batch at the start of a buffer with its records in another codec.

    Records, offsets, leader epoch, producer, timestamps and the other attributes stay. A batch that already has the
    codec, whatever its level, and a control batch stay byte for byte. If the codec would not shrink the records, they
    stay uncompressed, as in :class:`RecordBatchBuilder`. The records are not walked; :func:`inspect_produced` does
    that.

    ``compression`` is one of ``CODECS`` or ``uncompressed``; ``level`` None is the codec's default (KIP-390).

    Raises:
        CorruptRecordError: the batch is torn or damaged, or its records do not decompress within the limit.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
        ConfigError: the codec or level does not exist.
    """
    codec = codec_id(compression)
    level = check_level(CODECS[codec], level)
    header = validate_batch(buffer=batch)
    if codec == header.attributes & COMPRESSION_MASK or header.is_control:
        return bytes(memoryview(batch)[: header.size_in_bytes])
    plain = decompress_briefly(header.compression, record_section(batch, 0, header))
    return encode_batch(*compress_records(header, plain, compression, level))


def compress_records(
    header: RecordBatchHeader, plain: Buffer, compression: str, level: int | None = None
) -> tuple[RecordBatchHeader, Buffer]:
    """Return header and records for ``encode_batch`` in another codec; see :func:`recompress`.

    The records are ``plain`` itself if they stay uncompressed.

    Raises:
        ConfigError: the codec or level does not exist.
    """
    codec = codec_id(compression)
    level = check_level(CODECS[codec], level)
    packed: Buffer = compress(CODECS[codec], plain, level) if codec else plain
    if codec and len(packed) >= len(plain):
        codec, packed = 0, plain
    return header._replace(attributes=header.attributes & ~COMPRESSION_MASK | codec), packed
