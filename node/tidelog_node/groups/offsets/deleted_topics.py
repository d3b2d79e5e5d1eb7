"""Deleted topics, remembered until every group of a shard has lost its offsets of them.

A topic may be created again at once, and offsets of the new topic may be committed before the cleanup reaches the old
ones. A commit therefore deletes the old offsets first, in the same batch. No comparison of times decides which offset
is older.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_node.groups.offsets.committed import CommittedOffsets, TopicPartition


class DeletedTopics:
    """The deleted topics of one shard."""

    def __init__(self) -> None:
        self._deletions = 0
        self._topics: dict[str, int] = {}
        """The number of the deletion, by topic name."""
        self._groups: dict[str, int] = {}
        """The number of the last deletion applied to each group's offsets."""

    def add(self, names: Iterable[str]) -> None:
        """Record the deletion of topics."""
        self._deletions += 1
        self._topics.update(dict.fromkeys(names, self._deletions))

    def offsets_of(self, group_id: str, offsets: CommittedOffsets) -> set[TopicPartition]:
        """Return the partitions of deleted topics of which a group still has offsets, including those with a write in
        progress.
        """
        if not self._topics:
            return set()
        seen = self._groups.get(group_id, 0)
        return {partition for partition in offsets.known if self._topics.get(partition.topic, 0) > seen}

    def note_gone(self, group_id: str) -> None:
        """Record that the deletion of these offsets is in the log. The group's later offsets belong to new topics."""
        if self._topics:
            self._groups[group_id] = self._deletions

    def clear(self) -> None:
        """Forget all deletions, after every group has applied them."""
        self._topics.clear()
        self._groups.clear()
