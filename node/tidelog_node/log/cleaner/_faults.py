"""What both engines say of records that do not decode and of a map that has no room."""

from __future__ import annotations

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchHeader


def malformed(header: RecordBatchHeader, index: int, position: int, size: int) -> CorruptRecordError:
    """Return the error for a record that begins at a byte of its section, which has ``size`` bytes."""
    return CorruptRecordError(
        f"batch at offset {header.base_offset}: record {index} of {header.record_count} at byte {position} of {size}"
        " is not a record, or not where it belongs"
    )


def buffer_too_small(memory_bytes: int, load_factor: float) -> TidelogError:
    """Return the error for a map without room for one key."""
    return error_for(
        ErrorCode.INVALID_CONFIG,
        f"an offset map of {memory_bytes} bytes with load factor {load_factor} holds no key: raise"
        " log.cleaner.dedupe.buffer.size or lower log.cleaner.threads",
    )


def table_full(capacity: int) -> OverflowError:
    """Return the error for one key more than the map takes."""
    return OverflowError(f"the offset map is full: {capacity} keys")
