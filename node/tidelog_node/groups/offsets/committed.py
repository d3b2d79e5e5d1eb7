"""The offsets of one group: those that are committed, which are all that anybody is shown, and those under way.

What a commit has written becomes visible when it is committed, so that an offset that was seen never goes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tidelog_node.groups.events import GroupRecord
from tidelog_node.groups.records import OffsetCommitKey, OffsetCommitValue, decode, is_offset_key
from tidelog_node.groups.store import GroupStore


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


OffsetChange: TypeAlias = tuple[TopicPartition, OffsetCommitValue | None]
"""A partition with its new offset; None deletes it."""


class CommittedOffsets:
    """Begins with what the store has. When a write's outcome is not known, it is the store that is asked from then on.

    ``pending`` counts the writes under way by partition, those that delete included.
    """

    def __init__(self, group_id: str, store: GroupStore, records: Iterable[GroupRecord]) -> None:
        self._group_id = group_id
        self._store = store
        # Those of a group that is only listed are never looked at.
        self._unread: list[GroupRecord] = [record for record in records if is_offset_key(record.key)]
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
        """Whether a partition has a committed offset."""
        return bool(self._unread or self.committed)

    @property
    def known(self) -> set[TopicPartition]:
        """All partitions that have an offset, or may come to have one."""
        return self.committed.keys() | self.pending.keys() | self._unsure

    def write(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a write of these is under way."""
        self.pending.update(partitions)

    def end_write(self, partitions: Iterable[TopicPartition], *, unsure: bool = False) -> None:
        """Note that a write has ended; ``unsure`` says that it may be committed later without a word."""
        for partition in partitions:
            self.pending[partition] -= 1
            if not self.pending[partition]:
                del self.pending[partition]
            if unsure:
                self._unsure.add(partition)

    def apply(self, changes: Collection[OffsetChange]) -> None:
        """Take over what has been committed."""
        committed = self.committed if changes else {}
        for partition, value in changes:
            if value is None:
                committed.pop(partition, None)
            else:
                committed[partition] = value


def _offsets_in(records: Iterable[GroupRecord]) -> Iterator[tuple[TopicPartition, OffsetCommitValue]]:
    return ((partition, value) for partition, value in offset_changes_in(records) if value is not None)


def offset_changes_in(records: Iterable[GroupRecord]) -> Iterator[OffsetChange]:
    """Yield what these records say of offsets."""
    for record in records:
        decoded = decode(record)
        if decoded is None:
            continue
        key, value = decoded
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            yield TopicPartition(key.topic, key.partition), value
