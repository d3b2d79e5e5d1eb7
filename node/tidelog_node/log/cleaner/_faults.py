"""The errors of both engines for malformed records and for a full offset map."""

from __future__ import annotations

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchHeader


def malformed(header: RecordBatchHeader, index: int, position: int, size: int) -> CorruptRecordError:
    """Return the error for a malformed record at a byte of its section, which has ``size`` bytes."""
    return CorruptRecordError(
        f"batch at offset {header.base_offset}: record {index} of {header.record_count} at byte {position} of {size}"
        " is malformed or misplaced"
    )


def buffer_too_small(memory_bytes: int, load_factor: float) -> TidelogError:
    """Return the error for a map without space for one key."""
    return error_for(
        ErrorCode.INVALID_CONFIG,
        f"an offset map of {memory_bytes} bytes with load factor {load_factor} holds no key: raise"
        " log.cleaner.dedupe.buffer.size or lower log.cleaner.threads",
    )


def table_full(capacity: int) -> OverflowError:
    """Return the error for a key that exceeds the map's capacity."""
    return OverflowError(f"the offset map is full: {capacity} keys")
