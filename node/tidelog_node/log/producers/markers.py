"""Reads transaction markers from control batches."""

from __future__ import annotations

from tidelog_foundation.records import ControlType, read_control
from tidelog_node.log.producers.state import EndTransactionMarker


def read_marker(batch: bytes | bytearray | memoryview, position: int = 0) -> EndTransactionMarker | None:
    """Return the marker in the whole batch at a position.

    None for a data batch, a control batch of another kind, and one whose marker was compacted away.

    Raises:
        CorruptRecordError: the batch is truncated or altered, or its control record is malformed.
    """
    record = read_control(batch, position)
    if record is None:
        return None
    return EndTransactionMarker(record.kind is ControlType.COMMIT, record.coordinator_epoch)
