"""The offsets of one group: committed ones, the only visible ones, and those with a write in progress.

A commit becomes visible only when its records are committed, so that a visible offset never goes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tidelog_node.groups.records import OffsetCommitKey, OffsetCommitValue, decode, is_offset_key
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.store import RecordStore


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


OffsetChange: TypeAlias = tuple[TopicPartition, OffsetCommitValue | None]
"""A partition with its new offset. None deletes it."""


class CommittedOffsets:
    """The offsets of a group, initially those of the store. After a write with an unknown outcome the store is reread.

    ``pending`` counts the writes in progress by partition, including deletions.
    """

    def __init__(self, group_id: str, store: RecordStore, records: Iterable[ShardRecord]) -> None:
        self._group_id = group_id
        self._store = store
        # The records of a group that is only listed are never decoded.
        self._unread: list[ShardRecord] = [record for record in records if is_offset_key(record.key)]
        self._committed: dict[TopicPartition, OffsetCommitValue] = {}
        self._unsure: set[TopicPartition] = set()
        self.pending: Counter[TopicPartition] = Counter()

    @property
    def committed(self) -> dict[TopicPartition, OffsetCommitValue]:
        """The committed offset of each partition that has one."""
        if self._unsure:
            self._unread = list(self._store.records_of(self._group_id))
            self._committed = {}
        if self._unread:
            self._committed = dict(_offsets_in(self._unread))
            self._unread.clear()
        return self._committed

    @property
    def has_any(self) -> bool:
        """True if a partition has a committed offset."""
        return bool(self._unread or self.committed)

    @property
    def known(self) -> set[TopicPartition]:
        """All partitions that have an offset or may receive one."""
        return self.committed.keys() | self.pending.keys() | self._unsure

    def write(self, partitions: Iterable[TopicPartition]) -> None:
        """Note the start of a write to these partitions."""
        self.pending.update(partitions)

    def end_write(self, partitions: Iterable[TopicPartition], *, unsure: bool = False) -> None:
        """Note the end of a write. ``unsure`` means that it may be committed later without notice."""
        for partition in partitions:
            self.pending[partition] -= 1
            if not self.pending[partition]:
                del self.pending[partition]
            if unsure:
                self._unsure.add(partition)

    def apply(self, changes: Collection[OffsetChange]) -> None:
        """Apply committed changes."""
        committed = self.committed if changes else {}
        for partition, value in changes:
            if value is None:
                committed.pop(partition, None)
            else:
                committed[partition] = value


def _offsets_in(records: Iterable[ShardRecord]) -> Iterator[tuple[TopicPartition, OffsetCommitValue]]:
    return ((partition, value) for partition, value in offset_changes_in(records) if value is not None)


def offset_changes_in(records: Iterable[ShardRecord]) -> Iterator[OffsetChange]:
    """Yield the offset changes in these records."""
    for record in records:
        decoded = decode(record)
        if decoded is None:
            continue
        key, value = decoded
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            yield TopicPartition(key.topic, key.partition), value
