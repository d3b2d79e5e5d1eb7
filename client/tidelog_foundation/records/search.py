"""The search for a record of a batch by timestamp, without an object per record."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.records._engine import engine
from tidelog_foundation.records.compression import decompress_briefly
from tidelog_foundation.records.header import Buffer, RecordBatchHeader
from tidelog_foundation.records.validation import record_section, validate_batch


class FoundRecord(NamedTuple):
    """A record's offset and its timestamp in milliseconds."""

    offset: int
    timestamp_ms: int


def find_timestamp(batch: Buffer, timestamp_ms: int, min_offset: int, limit: int | None = None) -> FoundRecord | None:
    """Return the first record at or after a timestamp and an offset, or None.

    ``limit`` is the most bytes to which the records may decompress.

    Raises:
        OversizedRecordsError: they decompress to more.
        CorruptRecordError: the batch is torn or damaged, or cannot be decoded.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    plain, header = _opened(batch, limit)
    found = engine.find_timestamp(plain, header, timestamp_ms, min_offset)
    return None if found is None else FoundRecord(*found)


def find_greatest(batch: Buffer, min_offset: int, limit: int | None = None) -> FoundRecord | None:
    """Return the first record with the greatest timestamp at or after an offset, None if no record has a timestamp.

    Raises:
        CorruptRecordError, TidelogError: as :func:`find_timestamp`.
    """
    plain, header = _opened(batch, limit)
    found = engine.find_greatest(plain, header, min_offset)
    return None if found is None else FoundRecord(*found)


def _opened(batch: Buffer, limit: int | None) -> tuple[Buffer, RecordBatchHeader]:
    header = validate_batch(batch)
    return decompress_briefly(header.compression, record_section(batch, 0, header), limit), header
