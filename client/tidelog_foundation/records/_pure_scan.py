"""The pure engine's checks of batches without their records: header, bounds, CRC-32C and order."""

from __future__ import annotations

from crc32c import crc32c

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records.header import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    BatchesSummary,
    BatchScan,
    Buffer,
    RecordBatchHeader,
    parse_header,
)


def validate_batch(buffer: Buffer, position: int = 0, first_position: int = 0) -> RecordBatchHeader:
    """Return the header of the whole batch at a position, after checking its structure and its CRC-32C.

    Raises:
        CorruptRecordError: the batch is torn, has an impossible header, or its CRC does not match.
    """
    header = parse_header(buffer, position, first_position)
    size, remaining = header.size_in_bytes, len(buffer) - position
    if size > remaining:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset}: {size} bytes at byte {first_position + position},"
            f" {remaining} remain"
        )
    with memoryview(buffer) as view, view[position + ATTRIBUTES_POSITION : position + size] as covered:
        actual = crc32c(covered)
    if actual != header.crc:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset}: expected CRC {header.crc:#010x}, the bytes have {actual:#010x}"
        )
    return header


def scan_batches(buffer: Buffer, first_position: int = 0, least_offset: int = 0) -> BatchScan:
    """Return the batches from the beginning of a buffer; see :func:`tidelog_foundation.records.scan_batches`."""
    batches: list[tuple[int, RecordBatchHeader]] = []
    place, end, wanted = 0, len(buffer), HEADER_SIZE
    try:
        while end - place >= HEADER_SIZE:
            wanted = parse_header(buffer, place, first_position).size_in_bytes
            if wanted > end - place:
                break
            header = validate_batch(buffer, place, first_position)
            if header.base_offset < least_offset:
                raise _disordered(header, first_position + place, least_offset)
            batches.append((first_position + place, header))
            place, least_offset, wanted = place + header.size_in_bytes, header.next_offset, HEADER_SIZE
    except CorruptRecordError as fault:
        return BatchScan(batches, place, 0, fault)
    return BatchScan(batches, place, wanted, None)


def summarize_batches(buffer: Buffer) -> BatchesSummary:
    """Return the summary of whole batches; see :func:`tidelog_foundation.records.summarize_batches`."""
    place, end, found = 0, len(buffer), BatchesSummary(0, -1, -1)
    while end - place >= HEADER_SIZE:
        header = parse_header(buffer, place)
        place += header.size_in_bytes
        if place > end:
            break
        found = BatchesSummary(
            found.record_count + header.record_count,
            max(found.next_offset, header.next_offset),
            max(found.leader_epoch, header.partition_leader_epoch),
        )
    return found


def _disordered(header: RecordBatchHeader, position: int, least_offset: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"batch at byte {position} has base offset {header.base_offset}, the one before ends at {least_offset}"
    )
