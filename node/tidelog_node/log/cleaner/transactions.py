"""The transactions that a cleaner meets during a pass over a log (Kafka's CleanedTransactionMetadata). Pure: no I/O.

Decides for each batch whether the outcome of its transaction allows its removal. Batches of an aborted transaction go
at once. A marker stays while the pass has met a batch of its transaction, even one that the pass removes: the marker is
unnecessary only when no such batch is left on the disk. An aborted transaction with batches left stays in the index of
the cleaned segment. Batches arrive in log order, from the first one on; all their transactions have ended, because a
cleaner stays below the last stable offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog_foundation.records import RecordBatchHeader
from tidelog_foundation.records.control import ControlRecord, ControlType
from tidelog_node.log.segments.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The state of one pass over a log; ``aborted`` holds the aborted transactions in the range of the pass."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._met: set[int] = set()
        """Producers with a batch of a transaction whose marker the pass has not met yet."""
        self._retained: list[AbortedTransaction] = []

    def may_discard_data(self, header: RecordBatchHeader) -> bool:
        """Process a data batch and return whether it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return header.producer_id in self._aborted

    def may_discard_marker(self, header: RecordBatchHeader, marker: ControlRecord | None) -> bool:
        """Process a control batch and return whether nothing is left of its transaction.

        ``marker`` is None for a batch whose record was removed earlier, and for a control record of another kind, which
        stays.
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
