"""Reads records out of batches, one object per record."""

from __future__ import annotations

from tidelog.records._engine import Record, engine
from tidelog.records.compression import decompress
from tidelog.records.header import Buffer
from tidelog.records.validation import record_section, validate_batch


def read_records(buffer: Buffer, position: int = 0) -> list[Record]:
    """Return the records of the one batch at a position, control records included; :func:`iter_headers` finds batches.

    Raises:
        CorruptRecordError: the batch is torn or changed, does not decode, or decompresses beyond the limit.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = validate_batch(buffer, position)
    records = decompress(header.compression, record_section(buffer, position, header))
    return engine.decode_records(records, header)
