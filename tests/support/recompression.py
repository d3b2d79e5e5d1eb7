"""The conversion of a whole batch to another codec, as a leader does it part by part."""

from __future__ import annotations

from tidelog_foundation.records import compress_records, encode_batch, validate_batch
from tidelog_foundation.records.compression import CODECS, codec_id, decompress_briefly
from tidelog_foundation.records.header import Buffer
from tidelog_foundation.records.validation import record_section


def recompress(batch: Buffer, compression: str, level: int | None = None) -> bytes:
    """Return the batch at the start of a buffer in another codec; one that has it, or of markers, as it is."""
    header = validate_batch(batch)
    plain = decompress_briefly(header.compression, record_section(batch, 0, header))
    changed = compress_records(header, plain, compression, level)
    if CODECS[codec_id(compression)] == header.compression or header.is_control:
        return bytes(memoryview(batch)[: header.size_in_bytes])
    return encode_batch(*changed)
