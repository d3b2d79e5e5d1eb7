"""Topics that were deleted, until every group of a shard has lost its offsets of them.

A topic may be made again at once, and offsets of the new one be committed before the round over the groups has come to
the old ones. So whoever commits deletes them first, in the same batch; no clock is asked which offset is older.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_node.groups.offsets.committed import CommittedOffsets, TopicPartition


class DeletedTopics:
    """Of one shard."""

    def __init__(self) -> None:
        self._deletions = 0
        self._topics: dict[str, int] = {}
        """By name, in the how manieth deletion."""
        self._groups: dict[str, int] = {}
        """How many deletions the offsets of a group account for."""

    def add(self, names: Iterable[str]) -> None:
        """Note that topics are deleted."""
        self._deletions += 1
        self._topics.update(dict.fromkeys(names, self._deletions))

    def offsets_of(self, group_id: str, offsets: CommittedOffsets) -> set[TopicPartition]:
        """Return the partitions of deleted topics of which a group has offsets still, those under way included."""
        if not self._topics:
            return set()
        seen = self._groups.get(group_id, 0)
        return {partition for partition in offsets.known if self._topics.get(partition.topic, 0) > seen}

    def note_gone(self, group_id: str) -> None:
        """Note that the deletion of these offsets is in the log: what a group has from now on is of other topics."""
        if self._topics:
            self._groups[group_id] = self._deletions

    def clear(self) -> None:
        """Forget all: every group accounts for them."""
        self._topics.clear()
        self._groups.clear()
