"""The context of one step of a shard: its inputs and the commands that it collects."""

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
    """Records of one group to write as one batch, and the callbacks that follow.

    ``on_written`` runs when the records are in the log, ``on_committed`` when they are committed. ``on_failed`` runs
    instead of either one.
    """

    group_id: str
    records: tuple[GroupRecord, ...]
    on_written: Callable[[Step], None] | None
    on_committed: Callable[[Step], None] | None
    on_failed: Callable[[Step, TidelogError], None] | None
    offsets: tuple[OffsetChange, ...] = ()
    """The changes of committed offsets that the records contain."""


@dataclass(slots=True)
class Step:
    """The state that a step works with. ``topics`` is None until the topics of the cluster are known.

    Deadlines use ``now_ms``, which never goes back. Records use ``wall_ms``, the time of day.
    """

    now_ms: int
    wall_ms: int
    settings: GroupSettings
    topics: Mapping[str, TopicInfo] | None
    new_member_id: Callable[[str], str]
    """Returns a new member id that begins with the client id or the instance id, as Kafka's ids do."""
    outcomes: list[Write | tuple[int, GroupResponse]] = field(default_factory=list)
    """Writes, and responses with their call ids, in order."""

    def respond(self, call_id: int, response: GroupResponse) -> None:
        """Answer a call."""
        self.outcomes.append((call_id, response))

    def write(
        self,
        group_id: str,
        records: Iterable[GroupRecord] = (),
        *,
        on_written: Callable[[Step], None] | None = None,
        on_committed: Callable[[Step], None] | None = None,
        on_failed: Callable[[Step, TidelogError], None] | None = None,
        offsets: Iterable[OffsetChange] = (),
    ) -> None:
        """Request a write of the changed offsets followed by the other records."""
        changes = tuple(offsets)
        written = (*encode_offsets(group_id, changes), *records)
        self.outcomes.append(Write(group_id, written, on_written, on_committed, on_failed, changes))
