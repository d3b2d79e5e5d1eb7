"""The periodic pass over all groups of a shard, in slices: load groups, expire offsets, delete those of deleted topics.

A pass runs once after the shard begins, every ``offsets.retention.check.interval.ms``, and when topics are deleted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from tidelog_foundation.errors import TidelogError
from tidelog_node.groups.classic import ClassicGroup
from tidelog_node.groups.events import TopicInfo
from tidelog_node.groups.group_requests import group_tombstones
from tidelog_node.groups.held import HeldGroup
from tidelog_node.groups.offsets.deleted_topics import DeletedTopics
from tidelog_node.groups.offsets.encoding import in_parts
from tidelog_node.groups.offsets.requests import deletions
from tidelog_node.groups.offsets.retention import expired
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.turn import Turn

_SLICE = 30


class Sweep:
    """The state of the pass."""

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
        """Note that offsets of a deleted topic may remain. The next pass looks for them again."""
        self._has_failed = True


def clean_up(held: HeldGroup, sweep: Sweep, turn: Turn) -> None:
    """Delete offsets that have expired or belong to deleted topics, and the group if nothing is left of it."""
    deleted = sweep.deleted_topics.offsets_of(held.group_id, held.offsets)
    gone = deleted.union(expired(held.group, held.offsets, turn.wall_ms, turn.settings.offsets_retention_ms))
    deletes_group = not held.is_used and not held.open_writes and held.offsets.known == gone
    *parts, last = in_parts(held.group_id, deletions(gone))
    records = group_tombstones(held) if deletes_group else []

    def written(_: Turn) -> None:
        sweep.deleted_topics.note_gone(held.group_id)
        if deletes_group:
            held.group = ClassicGroup(held.group_id)
            held.is_recorded = False

    def failed(_: Turn, __: TidelogError) -> None:
        sweep.note_failure()

    for part in parts:
        turn.write(held.group_id, offsets=part, on_failed=failed)
    if last or records:
        turn.write(held.group_id, records, offsets=last, on_written=written, on_failed=failed)
    else:
        sweep.deleted_topics.note_gone(held.group_id)
