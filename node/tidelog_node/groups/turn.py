"""One step of a shard: what it knows, and where it puts what it commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tidelog_foundation.errors import TidelogError
from tidelog_node.groups.events import GroupRecord, GroupResponse, TopicInfo
from tidelog_node.groups.offsets.committed import OffsetChange
from tidelog_node.groups.offsets.encoding import encode_offsets
from tidelog_node.groups.settings import GroupSettings


@dataclass(frozen=True, slots=True)
class Write:
    """Records of one group that are to be written as one batch, and what follows.

    ``on_written`` comes when they are in the log, ``on_committed`` when they are committed; ``on_failed`` comes in
    place of either.
    """

    group_id: str
    records: tuple[GroupRecord, ...]
    on_written: Callable[[Turn], None] | None
    on_committed: Callable[[Turn], None] | None
    on_failed: Callable[[Turn, TidelogError], None] | None
    offsets: tuple[OffsetChange, ...] = ()
    """What the records say of offsets."""


@dataclass(slots=True)
class Turn:
    """What a step works with. ``topics`` is None as long as the topics of the cluster are not known.

    Deadlines are of ``now_ms``, which never goes back; ``wall_ms`` is the time of day, which records have.
    """

    now_ms: int
    wall_ms: int
    settings: GroupSettings
    topics: Mapping[str, TopicInfo] | None
    new_member_id: Callable[[str], str]
    """Returns a new member id that begins with the client's id or the instance id, as Kafka's do."""
    outcomes: list[Write | tuple[int, GroupResponse]] = field(default_factory=list)
    """In their order: writes, and responses with their call."""

    def respond(self, call_id: int, response: GroupResponse) -> None:
        """Answer a call."""
        self.outcomes.append((call_id, response))

    def write(
        self,
        group_id: str,
        records: Iterable[GroupRecord] = (),
        *,
        on_written: Callable[[Turn], None] | None = None,
        on_committed: Callable[[Turn], None] | None = None,
        on_failed: Callable[[Turn, TidelogError], None] | None = None,
        offsets: Iterable[OffsetChange] = (),
    ) -> None:
        """Ask for the records of changed offsets and other records to be written, in that order."""
        changes = tuple(offsets)
        written = (*encode_offsets(group_id, changes), *records)
        self.outcomes.append(Write(group_id, written, on_written, on_committed, on_failed, changes))
