"""The conversion of a batch to another codec, by which a leader applies a topic's ``compression.type``."""

from __future__ import annotations

from tidelog_foundation.records.compression import CODECS, check_level, codec_id, compress
from tidelog_foundation.records.header import COMPRESSION_MASK, Buffer, RecordBatchHeader


def compress_records(
    header: RecordBatchHeader, plain: Buffer, compression: str, level: int | None = None
) -> tuple[RecordBatchHeader, Buffer]:
    """Return header and records for ``encode_batch`` in another codec.

    ``plain`` are the decompressed records, which are not walked; :func:`inspect_produced` does that. Offsets, leader
    epoch, producer, timestamps and the other attributes stay. If the codec would not shrink the records, they stay
    uncompressed, as in :class:`RecordBatchBuilder`, and are ``plain`` itself.

    ``compression`` is one of ``CODECS`` or ``uncompressed``; ``level`` None is the codec's default (KIP-390).

    Raises:
        ConfigError: the codec or level does not exist.
    """
    codec = codec_id(compression)
    level = check_level(CODECS[codec], level)
    packed: Buffer = compress(CODECS[codec], plain, level) if codec else plain
    if codec and len(packed) >= len(plain):
        codec, packed = 0, plain
    return header._replace(attributes=header.attributes & ~COMPRESSION_MASK | codec), packed
