"""The materialized view of a shard's committed records: the interface, and a view in memory.

The first field of every key in Kafka's internal topics is a string that names the owner of the record: the group or the
transactional id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.wire import Reader


class RecordStore(Protocol):
    """The newest committed value of every key of a shard.

    The shell applies records before it reports RecordsCommitted.
    """

    def records_of(self, owner: str) -> Sequence[ShardRecord]:
        """Return the records of one owner in the order of their keys. No value is None."""
        ...

    def ids(self) -> Iterator[str]:
        """Yield the ids of all owners that have a record. Records may be applied during the iteration."""
        ...

    def pending_of(self, owner: str) -> Collection[bytes]:
        """Return the keys of an owner's records in open transactions."""
        ...


class MemoryRecordStore:
    """A :class:`RecordStore` in memory, for tests and for a coordinator that lives as long as its process."""

    def __init__(self, records: Iterable[ShardRecord] = ()) -> None:
        self._owners: dict[str, dict[bytes, bytes]] = {}
        self.apply(records)

    def records_of(self, owner: str) -> Sequence[ShardRecord]:
        """Return the records of one owner in the order of their keys."""
        return [ShardRecord(key, value) for key, value in sorted(self._owners.get(owner, {}).items())]

    def ids(self) -> Iterator[str]:
        """Return the ids of all owners that have a record."""
        return iter(tuple(self._owners))

    def pending_of(self, owner: str) -> Collection[bytes]:
        """Return the keys of an owner's records in open transactions: this store has none."""
        return ()

    def apply(self, records: Iterable[ShardRecord]) -> None:
        """Apply committed records in order."""
        for record in records:
            owner = owner_of(record.key)
            values = self._owners.setdefault(owner, {})
            if record.value is None:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
            if not values:
                del self._owners[owner]


def owner_of(key: bytes) -> str:
    """Return the id of the owner of a record, which is the first field of all of Kafka's key types.

    Raises:
        ValueError: The bytes are not a key of an internal topic.
    """
    reader = Reader(key)
    reader.int16()
    return reader.string()
