"""The faults inside a batch's records: one number and one text each, for both engines."""

from __future__ import annotations

from tidelog_foundation.errors import CorruptRecordError

FAULT_COUNT = 1
FAULT_LENGTH = 2
FAULT_BOUNDS = 3
FAULT_HEADERS = 4
FAULT_END = 5
FAULT_OFFSET = 6
FAULT_REMAINDER = 7

_TEXTS = {
    FAULT_COUNT: "the bytes are too few for so many records",
    FAULT_LENGTH: "its length runs past the end of the records",
    FAULT_BOUNDS: "a field runs past the end or is a varint of too many bytes",
    FAULT_HEADERS: "its headers do not fit into the record",
    FAULT_END: "its fields do not end where the record does",
    FAULT_OFFSET: "its offset delta is not between the previous one and the batch's last",
    FAULT_REMAINDER: "bytes remain behind the last record",
}


def malformed(fault: int, base_offset: int, index: int, position: int, size: int, count: int) -> CorruptRecordError:
    """Return the error for record ``index`` of ``count``, which starts at byte ``position`` of ``size``."""
    return CorruptRecordError(
        f"batch at offset {base_offset}: record {index} of {count}, at byte {position} of {size}: {_TEXTS[fault]}"
    )
