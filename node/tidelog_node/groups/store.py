"""The materialized view of a shard's committed records: the interface, and a view in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tidelog_node.groups.events import GroupRecord
from tidelog_node.groups.records import group_of


class GroupStore(Protocol):
    """The newest committed value of every key of a shard.

    The shell applies records before it reports RecordsCommitted.
    """

    def records_of(self, group_id: str) -> Sequence[GroupRecord]:
        """Return the records of one group in the order of their keys. No value is None."""
        ...

    def group_ids(self) -> Iterator[str]:
        """Return the ids of all groups that have a record, each once. Records may be applied during the iteration."""
        ...

    def apply(self, records: Iterable[GroupRecord]) -> None:
        """Apply committed records in the order of the log."""
        ...


class MemoryGroupStore:
    """A :class:`GroupStore` in memory, for tests and for a coordinator that lives as long as its process."""

    def __init__(self, records: Iterable[GroupRecord] = ()) -> None:
        self._groups: dict[str, dict[bytes, bytes]] = {}
        self.apply(records)

    def records_of(self, group_id: str) -> Sequence[GroupRecord]:
        """Return the records of one group in the order of their keys."""
        return [GroupRecord(key, value) for key, value in sorted(self._groups.get(group_id, {}).items())]

    def group_ids(self) -> Iterator[str]:
        """Return the ids of all groups that have a record."""
        return iter(tuple(self._groups))

    def apply(self, records: Iterable[GroupRecord]) -> None:
        """Apply committed records in order."""
        for record in records:
            group_id = group_of(record.key)
            values = self._groups.setdefault(group_id, {})
            if record.value is None:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
            if not values:
                del self._groups[group_id]
