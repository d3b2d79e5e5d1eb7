"""The view of a coordinator of an in-memory node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tidelog_node.coordination.view_layout import ShardName, ViewPosition, entry_key
from tidelog_node.coordination.views import ShardStore
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecord, StoredChange
from tidelog_node.shards.store import MemoryRecordStore


class MemoryShard(MemoryRecordStore):
    """One shard of the view."""

    def __init__(self, name: ShardName) -> None:
        self._name = name
        self._position: ViewPosition | None = None
        self._pending: dict[tuple[int, bytes], PendingRecord] = {}
        super().__init__()

    def position(self) -> ViewPosition | None:
        """Return the applied position of the log; None for an empty shard."""
        return self._position

    def pending(self) -> Iterator[PendingRecord]:
        """Return the records of the stored transactions."""
        return iter(list(self._pending.values()))

    def apply(
        self,
        records: Iterable[ShardRecord],
        position: ViewPosition | None = None,
        changes: Iterable[StoredChange] = (),
    ) -> None:
        """Apply committed records and changes of stored transactions, and skip records without an owner."""
        super().apply(record for record in records if entry_key(self._name, record.key) is not None)
        for producer_id, key, pending in changes:
            self._pending.pop((producer_id, key), None)
            if pending is not None:
                self._pending[producer_id, key] = pending
        self._position = position or self._position

    def clear(self) -> None:
        """Remove all records."""
        self._owners.clear()
        self._pending.clear()
        self._position = None


class MemoryView:
    """All shards of a node. Each start begins with an empty view and fills it from the logs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._shards: dict[ShardName, MemoryShard] = {}

    def shard(self, name: ShardName) -> ShardStore:
        """Return the view of one shard."""
        return self._shards.setdefault(name, MemoryShard(name))

    def shards(self) -> list[ShardName]:
        """Return the shards that have a position, in order."""
        return sorted(name for name, shard in self._shards.items() if shard.position() is not None)

    def begin_flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def open_memory_view(directory: Path, is_new: bool) -> MemoryView:
    """Return an empty view."""
    return MemoryView(directory)
