"""What is committed of a shard's groups, where the shard finds it again: the seam to the materialised view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tidelog_node.groups.events import GroupRecord


class GroupStore(Protocol):
    """The newest committed value of every key of a shard. The shell writes, before it says RecordsCommitted."""

    def records_of(self, group_id: str) -> Sequence[GroupRecord]:
        """Return the records of one group, in the order of their keys; none has the value None."""
        ...

    def group_ids(self) -> Iterator[str]:
        """Return the ids of all groups that have a record, each once; records may be applied between two of them."""
        ...

    def apply(self, records: Iterable[GroupRecord]) -> None:
        """Take over committed records, in the order of the log."""
        ...
