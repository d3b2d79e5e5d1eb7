"""Reads the end-of-transaction marker of a control batch (Kafka's ControlRecordType and EndTransactionMarker)."""

from __future__ import annotations

import struct

from tidelog.errors import CorruptRecordError
from tidelog.records import parse_header, read_records
from tidelog_node.log.producers.state import EndTransactionMarker

_ABORT, _COMMIT = 0, 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


def read_marker(batch: bytes | bytearray | memoryview, position: int = 0) -> EndTransactionMarker | None:
    """Return the marker in the whole batch at a position.

    None for a batch of data, a control batch of another kind, and one whose marker was compacted away.

    Raises:
        CorruptRecordError: the batch is torn or changed, or its control record is too short.
    """
    if not parse_header(batch, position).is_control:
        return None
    records = read_records(batch, position)
    if not records:
        return None
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < _KEY.size:
        raise CorruptRecordError(f"the key of the control record at offset {records[0].offset} has {len(key)} bytes")
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    if len(value) < _VALUE.size:
        raise CorruptRecordError(f"the transaction marker at offset {records[0].offset} has {len(value)} bytes")
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTransactionMarker(kind == _COMMIT, coordinator_epoch)
