"""The batches that a reader of committed records gets, in the form in which Kafka's brokers describe them (KIP-98)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from tidelog_foundation.records.control import ControlType, read_control
from tidelog_foundation.records.header import RecordBatchHeader
from tidelog_foundation.records.scan import iter_headers

AbortedTransactions = Sequence[tuple[int, int]]
"""(producer id, first offset) of the aborted transactions among fetched records."""


def data_batches(records: bytes, aborted: AbortedTransactions = ()) -> Iterator[tuple[int, RecordBatchHeader]]:
    """Yield the position and header of each batch of records that no transaction aborted, in order.

    Raises:
        CorruptRecordError: a transaction marker is malformed.
    """
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction[1]))
    skipped: set[int] = set()
    for position, header in iter_headers(records):
        while upcoming and upcoming[0][1] <= header.last_offset:
            skipped.add(upcoming.popleft()[0])
        if header.is_control:
            if header.producer_id in skipped:
                control = read_control(records, position)
                if control is not None and control.kind is ControlType.ABORT:
                    skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            yield position, header


def without_aborted(records: bytes, aborted: AbortedTransactions) -> bytes:
    """Return the batches of records that no transaction aborted.

    Raises:
        CorruptRecordError: a transaction marker is malformed.
    """
    return b"".join(records[at : at + header.size_in_bytes] for at, header in data_batches(records, aborted))
