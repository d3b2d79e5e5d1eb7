"""The records of open transactions of a shard, in memory until each transaction ends (KIP-98).

Records are added and ended in the order of the log. Those of a committed transaction take effect where its marker is,
but a later record of the same key wins: a record outside of transactions, or one of another transaction that was
committed before, supersedes the earlier records of its key in every open transaction. A record's place is its own
offset, not that of the marker, because compaction may remove markers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.store import owner_of


class PendingRecords:
    """The open transactions of one shard, by producer id. A producer has at most one."""

    def __init__(self) -> None:
        self._transactions: dict[int, dict[bytes, tuple[int, ShardRecord]]] = {}
        """The newest record of each key in each transaction, with its offset."""
        self._owners: dict[str, Counter[bytes]] = {}
        """The number of transactions by owner and key."""

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
            own[record.key] = (offset + place, record)

    def supersede(self, records: Iterable[ShardRecord]) -> None:
        """Drop the records whose keys were written again later, outside of transactions."""
        for record in records if self._transactions else ():
            for own in self._transactions.values():
                self._drop(own, record.key)

    def end(self, producer_id: int, *, committed: bool) -> list[ShardRecord]:
        """End a producer's transaction, and return the records that take effect, in the order of the log."""
        ended = self._transactions.pop(producer_id, {})
        applied = sorted(ended.values(), key=lambda found: found[0])
        for key in list(ended):
            self._drop(ended, key)
        if not committed:
            return []
        for offset, record in applied:
            for own in self._transactions.values():
                if own.get(record.key, (offset, record))[0] < offset:
                    self._drop(own, record.key)
        return [record for _, record in applied]

    def check_invariants(self) -> None:
        """Assert that the index of owners has exactly the keys of the transactions."""
        found: dict[str, Counter[bytes]] = {}
        for own in self._transactions.values():
            for key in own:
                found.setdefault(owner_of(key), Counter())[key] += 1
        assert found == self._owners, (found, self._owners)

    def _drop(self, own: dict[bytes, tuple[int, ShardRecord]], key: bytes) -> None:
        if own.pop(key, None) is None:
            return
        owner = owner_of(key)
        keys = self._owners[owner]
        keys[key] -= 1
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._owners[owner]
