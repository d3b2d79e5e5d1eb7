"""The records of open transactions of a shard, in memory until each transaction ends (KIP-98).

Records are added and ended in the order of the log. Those of a committed transaction take effect where its marker is,
but a later record of the same key wins: a record outside of transactions, or one of another transaction that was
committed before, supersedes the earlier records of its key in every open transaction. A record's place is its own
offset, not that of the marker, because compaction may remove markers.

A transaction can be stored, so that it survives a restart without its part of the log. Each change of its records is
then a :class:`StoredChange`, for the caller to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.store import owner_of


class PendingRecord(NamedTuple):
    """A record of an open transaction, with its offset in the log."""

    producer_id: int
    offset: int
    record: ShardRecord


class StoredChange(NamedTuple):
    """The new record of a key in a stored transaction, or None if the key must be removed."""

    producer_id: int
    key: bytes
    pending: PendingRecord | None


class PendingRecords:
    """The open transactions of one shard, by producer id. A producer has at most one."""

    def __init__(self, stored: Iterable[PendingRecord] = ()) -> None:
        """Begin with the records of stored transactions."""
        self._transactions: dict[int, dict[bytes, PendingRecord]] = {}
        """The newest record of each key in each transaction."""
        self._owners: dict[str, Counter[bytes]] = {}
        """The number of transactions by owner and key."""
        self._stored: set[int] = set()
        self._changes: dict[tuple[int, bytes], PendingRecord | None] = {}
        for pending in stored:
            self.add(pending.producer_id, pending.offset, (pending.record,))
            self._stored.add(pending.producer_id)
        self._changes.clear()

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._transactions

    def owners(self) -> Collection[str]:
        """Return the owners of records in open transactions."""
        return self._owners.keys()

    def owners_of(self, producer_id: int) -> frozenset[str]:
        """Return the owners of records in the transaction of a producer."""
        return frozenset(owner_of(key) for key in self._transactions.get(producer_id, ()))

    def keys_of(self, owner: str) -> Collection[bytes]:
        """Return the keys of an owner's records in open transactions."""
        return self._owners.get(owner, Counter()).keys()

    def add(self, producer_id: int, offset: int, records: Iterable[ShardRecord]) -> None:
        """Add records from ``offset`` on to the transaction of a producer, which begins with its first records."""
        own = self._transactions.setdefault(producer_id, {})
        for place, record in enumerate(records):
            if record.key not in own:
                self._owners.setdefault(owner_of(record.key), Counter())[record.key] += 1
            own[record.key] = PendingRecord(producer_id, offset + place, record)
            self._note_change(producer_id, record.key)

    def supersede(self, records: Iterable[ShardRecord]) -> None:
        """Drop the records whose keys were written again later, outside of transactions."""
        for record in records if self._transactions else ():
            for producer_id in self._producers_of(record.key):
                self._drop(producer_id, record.key)

    def end(self, producer_id: int, *, committed: bool) -> list[ShardRecord]:
        """End a producer's transaction, and return the records that take effect, in the order of the log."""
        applied = sorted(self._transactions.get(producer_id, {}).values(), key=lambda pending: pending.offset)
        for pending in applied:
            self._drop(producer_id, pending.record.key)
        self._transactions.pop(producer_id, None)
        self._stored.discard(producer_id)
        if not committed:
            return []
        for ended in applied:
            for other in self._producers_of(ended.record.key):
                if self._transactions[other][ended.record.key].offset < ended.offset:
                    self._drop(other, ended.record.key)
        return [pending.record for pending in applied]

    def store(self, producer_id: int) -> None:
        """Begin to store the transaction of a producer."""
        self._stored.add(producer_id)
        for key in self._transactions[producer_id]:
            self._note_change(producer_id, key)

    def take_changes(self) -> list[StoredChange]:
        """Return the changes of stored transactions since the last call."""
        changes, self._changes = self._changes, {}
        return [StoredChange(producer_id, key, pending) for (producer_id, key), pending in changes.items()]

    def stored(self) -> list[PendingRecord]:
        """Return the records of the stored transactions."""
        return [pending for producer_id in self._stored for pending in self._transactions[producer_id].values()]

    def check_invariants(self) -> None:
        """Assert that the index of owners has exactly the keys of the transactions, and that stored ones are open."""
        found: dict[str, Counter[bytes]] = {}
        for own in self._transactions.values():
            for key in own:
                found.setdefault(owner_of(key), Counter())[key] += 1
        assert found == self._owners, (found, self._owners)
        assert self._stored <= self._transactions.keys()

    def _producers_of(self, key: bytes) -> list[int]:
        if key not in self.keys_of(owner_of(key)):
            return []
        return [producer_id for producer_id, own in self._transactions.items() if key in own]

    def _drop(self, producer_id: int, key: bytes) -> None:
        if self._transactions[producer_id].pop(key, None) is None:
            return
        self._note_change(producer_id, key)
        owner = owner_of(key)
        keys = self._owners[owner]
        keys[key] -= 1
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._owners[owner]

    def _note_change(self, producer_id: int, key: bytes) -> None:
        if producer_id in self._stored:
            self._changes[producer_id, key] = self._transactions[producer_id].get(key)
