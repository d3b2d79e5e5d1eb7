"""Finds and checks many batches in one pass over their bytes, the records not looked at."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_foundation.records._engine import engine
from tidelog_foundation.records.header import HEADER_SIZE, BatchScan, Buffer, RecordBatchHeader

parse_header = engine.parse_header
"""``parse_header(buffer, position=0, first_position=0)``: see :func:`tidelog_foundation.records.header.parse_header`.

It is the engine's own function, because a call in between would cost as much again.
"""


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, RecordBatchHeader]]:
    """Yield position and header of each whole batch from a position on; stop before a torn tail.

    Raises:
        CorruptRecordError: a header that :func:`parse_header` refuses.
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
    """Return the batches from the begin of a buffer on that are whole, unchanged, and each above the one before.

    The buffer is a window over a file: it begins at the file's byte ``first_position``, from which the positions of the
    batches are counted, those in errors too. The first batch may not be below ``least_offset``. Stops where the next
    batch is not all in the buffer, and at the first that is not as it must be, which becomes the scan's ``fault``;
    nothing is raised. The records are not walked: the CRC says that they are as the producer wrote them.
    """
    return engine.scan_batches(buffer, first_position, least_offset)
