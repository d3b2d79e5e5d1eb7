"""The records of a shard: the committed ones in its view, and those of open transactions in memory.

A record of a transaction becomes a committed record of the view only at the transaction's COMMIT marker. Until then:

- The view's position stays before the first record of the transaction, so that a later load reads the whole transaction
  again.
- Once the log has grown by :data:`MAX_HELD_RECORDS` since that record, the view stores the transaction as well, and its
  position moves on. A transaction that stays open therefore does not make loads longer.

A load reads the log from the view's position on, and may apply records again that are in the view already, and add
records again to stored transactions. In the order of the log and up to its end, this gives the same result. A stored
transaction began before the position, so that a load reads no marker of an earlier transaction of its producer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tidelog_node.coordination.view_layout import ViewPosition
from tidelog_node.coordination.views import ShardStore
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecords, StoredChange

MAX_HELD_RECORDS = 10_000
"""The greatest distance of a view's position from the end of the log, in offsets, for the sake of open transactions."""


class ShardContents:
    """The ``RecordStore`` of a shard's core, in one term of leadership. Every method may raise ViewFailedError."""

    def __init__(self, store: ShardStore, position: ViewPosition, max_held_records: int = MAX_HELD_RECORDS) -> None:
        """``position`` is that from which the log is read."""
        self._store = store
        self._max_held_records = max_held_records
        self.last = position
        """The position behind everything that was applied or added."""
        self._pending = PendingRecords(store.pending())
        self._held: dict[int, ViewPosition] = {}
        """The position before the first record of each open transaction that is not stored, in the order of the log."""

    def records_of(self, owner: str) -> Sequence[ShardRecord]:
        """Return the committed records of one owner in the order of their keys."""
        return self._store.records_of(owner)

    def ids(self) -> Iterator[str]:
        """Yield the ids of all owners that have a record, committed or not. An id may be yielded twice."""
        yield from self._store.ids()
        yield from tuple(self._pending.owners())

    def pending_of(self, owner: str) -> Collection[bytes]:
        """Return the keys of an owner's records in open transactions."""
        return self._pending.keys_of(owner)

    def apply(self, records: Iterable[ShardRecord], position: ViewPosition) -> None:
        """Apply committed records outside of transactions, which end at ``position``."""
        applied = tuple(records)
        self._pending.supersede(applied)
        self._write(applied, position)

    def add(self, producer_id: int, offset: int, records: Iterable[ShardRecord], position: ViewPosition) -> None:
        """Add records from ``offset`` on, which end at ``position``, to the transaction of a producer."""
        if producer_id not in self._pending:
            self._held[producer_id] = self.last
        self._pending.add(producer_id, offset, records)
        self.last = position
        changes = self._store_old_transactions()
        if changes:
            self._store.apply((), self._position(), changes)

    def end(self, producer_id: int, position: ViewPosition, *, committed: bool) -> frozenset[str]:
        """End the transaction of a producer with a marker before ``position``, and return the owners it concerned."""
        owners = self._pending.owners_of(producer_id)
        records = self._pending.end(producer_id, committed=committed)
        self._held.pop(producer_id, None)
        self._write(records, position)
        return owners

    def check_invariants(self) -> None:
        """Assert that each open transaction is either stored or holds the position back."""
        self._pending.check_invariants()
        assert sorted(self._store.pending()) == sorted(self._pending.stored())
        assert all(producer_id in self._pending for producer_id in self._held)
        offsets = [held.offset for held in self._held.values()]
        assert offsets == sorted(offsets)
        assert self.last.offset - min(offsets, default=self.last.offset) <= self._max_held_records

    def _write(self, records: Iterable[ShardRecord], position: ViewPosition) -> None:
        self.last = position
        changes = self._store_old_transactions()
        self._store.apply(records, self._position(), changes)

    def _store_old_transactions(self) -> list[StoredChange]:
        """Store the transactions that hold the position back too far, and return the changes to write."""
        for producer_id, held in list(self._held.items()):
            if self.last.offset - held.offset <= self._max_held_records:
                break
            self._pending.store(producer_id)
            del self._held[producer_id]
        return self._pending.take_changes()

    def _position(self) -> ViewPosition:
        """Return the position of the view."""
        first = next(iter(self._held.values()), self.last)
        return replace(first, written_ms=self.last.written_ms)
