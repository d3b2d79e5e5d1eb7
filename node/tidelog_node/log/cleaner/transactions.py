"""The transactions that a cleaner meets on its way through a log (Kafka's CleanedTransactionMetadata), without I/O.

Says of each batch whether its records may go because of its transaction. The batches of an aborted transaction go at
once. A marker stays while the cleaner has met a batch of its transaction in this cleaning, even one that it removes:
only when none is left on the disk does nobody need the marker. An aborted transaction that has batches left stays in
the index of the cleaned segment. Batches come in the order of the log, from its first one on; all their transactions
have ended, for a cleaner stays below the last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog_foundation.records import RecordBatchHeader
from tidelog_foundation.records.control import ControlRecord, ControlType
from tidelog_node.log.segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The state of one pass over a log; ``aborted`` are the aborted transactions that touch what is passed over."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        """The producers of which a batch of the transaction was met that has no marker yet."""
        self._retained: list[AbortedTransaction] = []

    def may_discard_data(self, header: RecordBatchHeader) -> bool:
        """Take in a batch of data and return whether it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def may_discard_marker(self, header: RecordBatchHeader, marker: ControlRecord | None) -> bool:
        """Take in a control batch and return whether nothing is left of its transaction.

        ``marker`` is None for a batch whose record was removed earlier, and for a control record of another kind,
        which stays.
        """
        self._begin_up_to(header.last_offset)
        if header.record_count == 0:
            return True
        if marker is None:
            return False
        was_met = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if marker.kind is ControlType.ABORT:
            transaction = self._aborted.pop(header.producer_id, None)
            if transaction is not None and was_met:
                self._retained.append(transaction)
        return not was_met

    def take_retained(self) -> list[AbortedTransaction]:
        """Return the aborted transactions that ended since the last call and have batches left."""
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset <= offset:
            transaction = self._ahead.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
