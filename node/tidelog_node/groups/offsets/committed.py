"""The offsets of one group: committed ones, the only visible ones, and those with a write in progress.

A commit becomes visible only when its records are committed, so that a visible offset never goes back. A commit in a
transaction becomes visible when the transaction is committed; until it ends, the offset is unstable (KIP-447).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tidelog_node.groups.records import OffsetCommitKey, OffsetCommitValue, decode, decode_key, is_offset_key
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
        self._in_transactions: Counter[TopicPartition] = Counter()
        """The writes in progress that belong to transactions; the store has those that were committed to the log."""

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
        return bool(self._unread or self.committed or self._store.pending_of(self._group_id))

    @property
    def known(self) -> set[TopicPartition]:
        """All partitions that have an offset or may receive one."""
        return self.committed.keys() | self.pending.keys() | self._unsure | self.unstable

    @property
    def unstable(self) -> set[TopicPartition]:
        """All partitions whose offsets an open transaction may change."""
        keys = (decode_key(key) for key in self._store.pending_of(self._group_id))
        in_store = {TopicPartition(key.topic, key.partition) for key in keys if isinstance(key, OffsetCommitKey)}
        return in_store | self._in_transactions.keys()

    def write(self, partitions: Iterable[TopicPartition], *, in_transaction: bool = False) -> None:
        """Record the start of a write to these partitions."""
        changed = tuple(partitions)
        self.pending.update(changed)
        if in_transaction:
            self._in_transactions.update(changed)

    def end_write(
        self, partitions: Iterable[TopicPartition], *, unsure: bool = False, in_transaction: bool = False
    ) -> None:
        """Record the end of a write. ``unsure`` means that it may be committed later without notice."""
        for partition in partitions:
            _count_down(self.pending, partition)
            if in_transaction:
                _count_down(self._in_transactions, partition)
            if unsure:
                self._unsure.add(partition)

    def read_again(self) -> None:
        """Take over the offsets of the store, after a transaction changed them."""
        self._unread = [record for record in self._store.records_of(self._group_id) if is_offset_key(record.key)]
        self._committed = {}

    def apply(self, changes: Collection[OffsetChange]) -> None:
        """Apply committed changes."""
        committed = self.committed if changes else {}
        for partition, value in changes:
            if value is None:
                committed.pop(partition, None)
            else:
                committed[partition] = value


def _count_down(counts: Counter[TopicPartition], partition: TopicPartition) -> None:
    counts[partition] -= 1
    if not counts[partition]:
        del counts[partition]


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
