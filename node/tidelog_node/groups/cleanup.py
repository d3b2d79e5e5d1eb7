"""The periodic cleanup of the groups of a shard: expired offsets, offsets of deleted topics, and groups without either.

It processes groups in slices, once after the shard begins, every ``offsets.retention.check.interval.ms``, and when
topics are deleted. Offsets expire as in Kafka's OffsetExpirationCondition (KIP-211).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.groups.classic import ClassicGroup, ClassicState
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.loaded_groups import LoadedGroup
from tidelog_node.groups.member_requests import group_tombstones
from tidelog_node.groups.offsets.committed import CommittedOffsets, TopicPartition
from tidelog_node.groups.offsets.deleted_topics import DeletedTopics
from tidelog_node.groups.offsets.encoding import in_parts
from tidelog_node.groups.offsets.requests import deletions
from tidelog_node.groups.records import OffsetCommitValue
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.step import Effect, Step
from tidelog_node.groups.value_formats import NO_TIMESTAMP

_SLICE = 30


class Cleanup:
    """The state of a pass over the groups."""

    def __init__(self, now_ms: int) -> None:
        self.next_ms = now_ms
        self.deleted_topics = DeletedTopics()
        self._left: Iterator[str] | None = None
        self._has_failed = False

    def change_topics(self, before: Mapping[str, TopicInfo], after: Mapping[str, TopicInfo], now_ms: int) -> None:
        """Begin a pass if topics were deleted. A topic created again under the same name counts as deleted."""
        deleted = [n for n, t in before.items() if n not in after or after[n].topic_id != t.topic_id]
        if deleted:
            self.deleted_topics.add(deleted)
            self._left = None
            self.next_ms = now_ms

    def next_slice(self, now_ms: int, ids: Callable[[], Iterator[str]], settings: GroupSettings) -> list[str]:
        """Return the next groups to clean up; none before the next pass is due or when a pass ends."""
        if now_ms < self.next_ms:
            return []
        if self._left is None:
            self._left = ids()
            self._has_failed = False
        groups = list(dict.fromkeys(itertools.islice(self._left, _SLICE)))
        if not groups:
            self._left = None
            self.next_ms = now_ms + settings.offsets_retention_check_interval_ms
            if not self._has_failed:
                self.deleted_topics.clear()
        return groups

    def note_failure(self) -> None:
        """Record that offsets of a deleted topic may remain. The next pass looks for them again."""
        self._has_failed = True


def clean_up(loaded: LoadedGroup, cleanup: Cleanup, step: Step) -> None:
    """Delete offsets that have expired or belong to deleted topics, and the group if nothing is left of it."""
    deleted = cleanup.deleted_topics.offsets_of(loaded.group_id, loaded.offsets)
    gone = deleted.union(_expired(loaded.group, loaded.offsets, step.wall_ms, step.settings.offsets_retention_ms))
    deletes_group = not loaded.is_used and not loaded.open_writes and loaded.offsets.known == gone
    *parts, last = in_parts(loaded.group_id, deletions(gone))
    records = group_tombstones(loaded) if deletes_group else []

    for part in parts:
        step.write(loaded.group_id, (), _Cleaned(loaded, cleanup, is_last=False), offsets=part)
    if last or records:
        step.write(
            loaded.group_id, records, _Cleaned(loaded, cleanup, is_last=True, deletes_group=deletes_group), offsets=last
        )
    else:
        cleanup.deleted_topics.note_gone(loaded.group_id)


@dataclass(frozen=True, slots=True)
class _Cleaned(Effect):
    """Deleted offsets of a group, and in the last write the group itself if nothing is left of it."""

    loaded: LoadedGroup
    cleanup: Cleanup
    is_last: bool
    deletes_group: bool = False

    def written(self, step: Step) -> None:
        if self.is_last:
            self.cleanup.deleted_topics.note_gone(self.loaded.group_id)
        if self.deletes_group:
            self.loaded.forget()

    def failed(self, step: Step, error: TidelogError) -> None:
        self.cleanup.note_failure()


def _expired(
    group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets, wall_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose offsets have expired.

    A partition with a write in progress, or with an offset in an open transaction, is kept.
    """
    unstable = offsets.unstable

    def is_over(partition: TopicPartition, value: OffsetCommitValue) -> bool:
        since_ms = _retained_since_ms(group, value)
        if (
            since_ms is None
            or offsets.pending[partition]
            or partition in unstable
            or group.is_subscribed_to(partition.topic)
        ):
            return False
        if value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= value.expire_timestamp
        return wall_ms - since_ms >= retention_ms

    return [partition for partition, value in offsets.committed.items() if is_over(partition, value)]


def _retained_since_ms(group: ClassicGroup | ConsumerGroup, value: OffsetCommitValue) -> int | None:
    """Return the time at which an offset's retention began, or None if it has not begun."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return value.commit_timestamp
    if group.is_empty:
        # Retention began when the group became empty. Old records do not contain that time.
        return value.commit_timestamp if group.state_timestamp_ms is None else group.state_timestamp_ms
    knows_topics = group.uses_consumer_protocol and group.subscribed_topics is not None
    return value.commit_timestamp if knows_topics and group.state is ClassicState.STABLE else None
