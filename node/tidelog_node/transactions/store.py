"""The committed transactional ids of a shard, decoded from the materialized view of its records."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog_node.shards.store import RecordStore
from tidelog_node.transactions.record_format import decode_value
from tidelog_node.transactions.states import TransactionMetadata


class TransactionStore:
    """The newest committed state of every transactional id of a shard."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, or None.

        Raises:
            ValueError: The record is damaged.
        """
        for record in self._records.records_of(transactional_id):
            if record.value is not None:
                return decode_value(record.value)
        return None

    def ids(self) -> Iterator[str]:
        """Yield all transactional ids, each once. Records may be applied during the iteration."""
        return self._records.ids()
