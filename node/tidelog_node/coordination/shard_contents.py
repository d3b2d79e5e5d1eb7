"""The records of a shard: the committed ones in its view, and those of open transactions in memory.

The rule of the view: a record of a transaction is added to it only at the transaction's COMMIT marker. The view's
position is never behind the first record of an open transaction, so that a later load reads the whole transaction
again. The records behind the position that are in the view already are applied a second time then, in the order of the
log and up to its end, which gives the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tidelog_node.coordination.view_layout import ViewPosition
from tidelog_node.coordination.views import ShardStore
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecords


class ShardContents:
    """The ``RecordStore`` of a shard's core, in one term of leadership. Every method may raise ViewFailedError."""

    def __init__(self, store: ShardStore, position: ViewPosition | None) -> None:
        """``position`` is that from which the log is read."""
        self._store = store
        self.last = position
        """The position behind everything that was applied or added."""
        self._pending = PendingRecords()
        self._held: dict[int, ViewPosition | None] = {}
        """The position before the first record of each open transaction."""

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

    def end(self, producer_id: int, position: ViewPosition, *, committed: bool) -> frozenset[str]:
        """End the transaction of a producer with a marker before ``position``, and return the owners it concerned."""
        owners = self._pending.owners_of(producer_id)
        records = self._pending.end(producer_id, committed=committed)
        self._held.pop(producer_id, None)
        self._write(records, position)
        return owners

    def check_invariants(self) -> None:
        """Assert that the position of each open transaction is known."""
        self._pending.check_invariants()
        assert all(producer_id in self._pending for producer_id in self._held)

    def _write(self, records: Iterable[ShardRecord], position: ViewPosition) -> None:
        self.last = position
        held = self._held.values()
        if None in held:
            self._store.apply(records, None)
            return
        first = min([*(each for each in held if each is not None), position], key=lambda each: each.offset)
        self._store.apply(records, replace(first, written_ms=position.written_ms))
