"""The reader of records from batches, one object per record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from tidelog_foundation.records._engine import Record, engine
from tidelog_foundation.records.compression import decompress, decompress_briefly
from tidelog_foundation.records.header import Buffer, RecordBatchHeader
from tidelog_foundation.records.validation import record_section, validate_batch

RECORDS_AT_ONCE = 4096
"""The most records of a batch that :func:`read_parts` turns into objects at a time."""


def read_records(buffer: Buffer, position: int = 0) -> list[Record]:
    """Return the records of the one batch at a position, control records included; :func:`iter_headers` finds batches.

    Use :func:`iter_records` for batches from others, where seven bytes can become an object of two hundred.

    Raises:
        CorruptRecordError: the batch is torn or damaged, cannot be decoded, or decompresses beyond the limit.
        TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = validate_batch(buffer, position)
    records = decompress(header.compression, record_section(buffer, position, header))
    return engine.decode_records(records, header)


def iter_records(buffer: Buffer, position: int = 0, start_offset: int = 0) -> Iterator[Record]:
    """Yield the records of the batch at a position from an offset on, with few objects at a time.

    Raises:
        CorruptRecordError, TidelogError: see :func:`read_records`, before the first record.
    """
    return chain.from_iterable(read_parts(buffer, position, start_offset))


def read_parts(buffer: Buffer, position: int = 0, start_offset: int = 0) -> Iterator[list[Record]]:
    """Yield the records of the batch at a position from an offset on, in lists of 1 to ``RECORDS_AT_ONCE``.

    Raises:
        CorruptRecordError, TidelogError: see :func:`read_records`, before the first list.
    """
    header = validate_batch(buffer, position)
    records = decompress(header.compression, record_section(buffer, position, header))
    decoder = engine.RecordDecoder(records, header, start_offset)
    if header.record_count < RECORDS_AT_ONCE:
        if part := decoder.read(RECORDS_AT_ONCE):
            yield part
        return
    # Check the whole batch before yielding a part of it.
    engine.summarize_records(records, header)
    while part := decoder.read(RECORDS_AT_ONCE):
        yield part


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
        CorruptRecordError, TidelogError: see :func:`find_timestamp`.
    """
    plain, header = _opened(batch, limit)
    found = engine.find_greatest(plain, header, min_offset)
    return None if found is None else FoundRecord(*found)


def _opened(batch: Buffer, limit: int | None) -> tuple[Buffer, RecordBatchHeader]:
    header = validate_batch(batch)
    return decompress_briefly(header.compression, record_section(batch, 0, header), limit), header
