"""The interface between a shard and the materialized view of its committed records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tidelog_node.groups.events import GroupRecord


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
