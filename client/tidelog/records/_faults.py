"""What can be wrong inside the records of a batch: one number and one sentence each, for both engines."""

from __future__ import annotations

from tidelog.errors import CorruptRecordError

FAULT_VARINT = 1
FAULT_LENGTH = 2
FAULT_BOUNDS = 3
FAULT_HEADERS = 4
FAULT_TRAILING = 5
FAULT_OFFSET = 6
FAULT_TIMESTAMP = 7
FAULT_COUNT = 8
FAULT_REMAINDER = 9

_TEXTS = {
    FAULT_VARINT: "its length is no varint of at most 5 bytes",
    FAULT_LENGTH: "its length runs past the end of the records",
    FAULT_BOUNDS: "a field runs past the end of the record or is no varint",
    FAULT_HEADERS: "its headers do not fit into the record",
    FAULT_TRAILING: "its fields end before the record does",
    FAULT_OFFSET: "its offset delta is not between the previous one and the batch's last",
    FAULT_TIMESTAMP: "its timestamp is out of the range of int64",
    FAULT_COUNT: "the records' bytes are too few for so many records",
    FAULT_REMAINDER: "bytes remain behind the last record",
}


def malformed(fault: int, base_offset: int, index: int, position: int, size: int, count: int) -> CorruptRecordError:
    """Return the error for record ``index`` of ``count``, which starts at byte ``position`` of ``size``."""
    return CorruptRecordError(
        f"batch at offset {base_offset}: record {index} of {count}, at byte {position} of {size}: {_TEXTS[fault]}"
    )
