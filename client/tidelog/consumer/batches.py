"""Selection of the readable batches of a delivery, without control records and aborted transactions (KIP-98)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tidelog.consumer.core import Deliver
from tidelog_foundation.records import ControlType, RecordBatchHeader, iter_headers, read_control


def readable_batches(item: Deliver) -> Iterator[tuple[int, RecordBatchHeader]]:
    """Yield the position and header of each batch with records at or after the delivery's offset, in order.

    Raises:
        CorruptRecordError: a transaction marker is malformed.
    """
    aborted = deque(sorted(item.aborted, key=lambda transaction: transaction[1]))
    skipped: set[int] = set()
    for position, header in iter_headers(item.records):
        while aborted and aborted[0][1] <= header.last_offset:
            skipped.add(aborted.popleft()[0])
        if header.is_control:
            if header.producer_id in skipped and _is_abort(item.records, position):
                skipped.discard(header.producer_id)
        elif header.next_offset > item.offset and not (header.is_transactional and header.producer_id in skipped):
            yield position, header


def _is_abort(records: bytes, position: int) -> bool:
    control = read_control(records, position)
    return control is not None and control.kind is ControlType.ABORT
