"""The scan of many batches in one pass over their bytes, without their records."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_foundation.records._engine import engine
from tidelog_foundation.records.header import HEADER_SIZE, BatchesSummary, BatchScan, Buffer, RecordBatchHeader

parse_header = engine.parse_header
"""``parse_header(buffer, position=0, first_position=0)``: see :func:`tidelog_foundation.records.header.parse_header`.

It is the engine's own function, because a wrapper would double its cost.
"""


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader]]:
    """Yield position and header of each whole batch from a position on; stop before a torn tail.

    Raises:
        CorruptRecordError: :func:`parse_header` rejects a header.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = engine.parse_header(buffer, position)
        size = header.size_in_bytes
        if size > end - position:
            return
        yield position, header
        position += size


def scan_batches(buffer: Buffer, first_position: int = 0, least_offset: int = 0) -> BatchScan:
    """Return the whole, undamaged batches from the beginning of a buffer, each above the previous one.

    The buffer is a window over a file: it begins at the file's byte ``first_position``, and all positions, also those
    in errors, count from the file's beginning. The first batch must not be below ``least_offset``. The scan stops at a
    batch that is not wholly in the buffer, and at the first invalid one, which becomes its ``fault``; it raises
    nothing. The records are not walked, because the CRC proves that they are as the producer wrote them.
    """
    return engine.scan_batches(buffer, first_position, least_offset)


def summarize_batches(buffer: Buffer) -> BatchesSummary:
    """Return the summary of the batches in a buffer, up to a torn tail.

    Raises:
        CorruptRecordError: :func:`parse_header` rejects a header.
    """
    return engine.summarize_batches(buffer)
