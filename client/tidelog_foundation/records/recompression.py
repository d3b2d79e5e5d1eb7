"""Gives a batch another codec and keeps everything else: what a leader does for a topic's ``compression.type``."""

from __future__ import annotations

from tidelog_foundation.records.compression import CODECS, check_level, codec_id, compress, decompress_briefly
from tidelog_foundation.records.header import COMPRESSION_MASK, Buffer, RecordBatchHeader, encode_batch
from tidelog_foundation.records.validation import record_section, validate_batch


def recompress(batch: Buffer, compression: str, level: int | None = None) -> bytes:
    """Return the one batch at the start of a buffer with its records in another codec.

    Records, offsets, leader epoch, producer, timestamps and the other attributes stay. A batch that has the codec
    stays byte for byte, whatever the level, and so does a control batch. Where the codec would not make the records
    smaller than they are without one, they get none, as by :class:`RecordBatchBuilder`. The records are not walked:
    :func:`inspect_produced` does that.

    ``compression`` is one of ``CODECS`` or ``uncompressed``; ``level`` None is the codec's default (KIP-390).

    Raises:
        CorruptRecordError: the batch is torn or changed, or its records do not decompress within the limit.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
        ConfigError: no such codec or level.
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
    """Return header and records, from which ``encode_batch`` makes the batch in another codec: see :func:`recompress`.

    The records are ``plain`` itself where they get no codec.

    Raises:
        ConfigError: no such codec or level.
    """
    codec = codec_id(compression)
    level = check_level(CODECS[codec], level)
    packed: Buffer = compress(CODECS[codec], plain, level) if codec else plain
    if codec and len(packed) >= len(plain):
        codec, packed = 0, plain
    return header._replace(attributes=header.attributes & ~COMPRESSION_MASK | codec), packed
