"""The groups of a shard that are in memory. A group is loaded from its records at first use and kept while needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_node.groups.classic import ClassicGroup
from tidelog_node.groups.classic.persistence import group_of_record
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.offsets import CommittedOffsets
from tidelog_node.groups.records import (
    GroupMetadataValue,
    Key,
    Value,
    decode,
    is_offset_key,
)
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.step import Answer, Step
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.store import RecordStore

Group: TypeAlias = ClassicGroup | ConsumerGroup


@dataclass(slots=True)
class LoadedGroup:
    """A group in memory. A group that has offsets but no members is a (simple) classic group too."""

    group_id: str
    group: Group
    offsets: CommittedOffsets
    is_recorded: bool
    """True if a committed record, other than an offset, states that the group exists."""
    open_writes: set[int] = field(default_factory=set)
    """The ids of writes that are neither committed nor failed."""
    waiting: deque[tuple[int, Answer]] = field(default_factory=deque)
    """Answers that depend on earlier writes, in ascending order of write id."""
    is_ahead: bool = False
    """True if a write failed. Memory may then be ahead of the records, so the group must not be reloaded from them."""

    @property
    def exists(self) -> bool:
        """True if the group exists from a client's point of view."""
        return self.is_recorded or bool(self.open_writes) or self.is_used or self.offsets.has_any

    @property
    def protocol(self) -> str:
        """The group's protocol: classic or consumer."""
        return "classic" if isinstance(self.group, ClassicGroup) else "consumer"

    @property
    def state_name(self) -> str:
        """Kafka's name of the group's state."""
        return str(self.group.state) if isinstance(self.group, ClassicGroup) else self.group.state_name

    @property
    def is_used(self) -> bool:
        """True if the group has members or pending joins, which are in memory only or about to be written."""
        if isinstance(self.group, ClassicGroup):
            return not self.group.is_empty or bool(self.group.pending_joins)
        return not self.group.is_empty

    @property
    def may_be_dropped(self) -> bool:
        """True if the records contain all of the group's state."""
        return not self.open_writes and not self.is_used and not self.is_ahead

    def forget(self) -> None:
        """Record that the tombstones of the group are in the log. A new group begins."""
        self.group = ClassicGroup(self.group_id)
        self.is_recorded = False

    def answer(self, step: Step, answer: Answer) -> None:
        """Answer a call when all writes of the group so far are committed, or refuse it if one fails."""
        if self.open_writes:
            self.waiting.append((max(self.open_writes), answer))
        else:
            answer.committed(step)


class LoadedGroups:
    """All groups of a shard. Those in memory are found by id; the others are read from the store."""

    def __init__(self, store: RecordStore, settings: GroupSettings) -> None:
        self._store = store
        self._settings = settings
        self._loaded: dict[str, LoadedGroup] = {}
        self.touched: set[str] = set()
        """The groups requested since the last :meth:`forget_missing`."""

    def __iter__(self) -> Iterator[LoadedGroup]:
        return iter(tuple(self._loaded.values()))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._loaded

    def ids(self) -> Iterator[str]:
        """Yield the ids of all groups that may exist, some of them twice. Groups may appear and disappear meanwhile."""
        yield from self._store.ids()
        yield from tuple(self._loaded)

    def change_settings(self, settings: GroupSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        for loaded in self._loaded.values():
            if isinstance(loaded.group, ConsumerGroup):
                loaded.group.change_settings(settings)

    def get(self, group_id: str, begin: Callable[[LoadedGroup], None]) -> LoadedGroup:
        """Return a group, an empty classic one if it does not exist.

        ``begin`` is called for a group that had to be loaded.
        """
        self.touched.add(group_id)
        loaded = self._loaded.get(group_id)
        if loaded is None:
            loaded = self._loaded[group_id] = self._load(group_id)
            begin(loaded)
        return loaded

    def peek(self, group_id: str) -> LoadedGroup | None:
        """Return a group if it is in memory."""
        return self._loaded.get(group_id)

    def drop(self, group_id: str) -> None:
        """Drop a group from memory if its records contain all of its state."""
        loaded = self._loaded.get(group_id)
        if loaded is not None and loaded.may_be_dropped:
            del self._loaded[group_id]

    def forget_missing(self) -> set[str]:
        """Drop the touched groups that do not exist, and return all touched groups."""
        touched, self.touched = self.touched, set()
        for group_id in touched:
            loaded = self._loaded.get(group_id)
            if loaded is not None and not loaded.exists:
                del self._loaded[group_id]
        return touched

    def _load(self, group_id: str) -> LoadedGroup:
        records = self._store.records_of(group_id)
        parts = [part for record in records if (part := _part_of(record)) is not None]
        group = _group_of(group_id, parts, self._settings)
        return LoadedGroup(group_id, group, CommittedOffsets(group_id, self._store, records), is_recorded=bool(parts))


def _part_of(record: ShardRecord) -> tuple[Key, Value] | None:
    decoded = None if is_offset_key(record.key) else decode(record)
    if decoded is None or decoded[1] is None:
        return None
    return decoded[0], decoded[1]


def _group_of(group_id: str, parts: list[tuple[Key, Value]], settings: GroupSettings) -> Group:
    for _, value in parts:
        if isinstance(value, GroupMetadataValue):
            return group_of_record(group_id, value)
    if not parts:
        return ClassicGroup(group_id)
    group = ConsumerGroup(group_id, settings)
    for key, value in parts:
        group.replay(key, value)
    return group


def not_found(group_id: str) -> TidelogError:
    """Return the error for a group that does not exist."""
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} not found")
