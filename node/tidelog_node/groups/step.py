"""The context of one step of a shard: its inputs and the commands that it collects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.broker.report import Level, Report
from tidelog_node.groups.answers import refuse_write
from tidelog_node.groups.events import GroupRequest, GroupResponse, TopicInfo
from tidelog_node.groups.offsets.committed import OffsetChange
from tidelog_node.groups.offsets.encoding import encode_offsets
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.shards.events import RecordsTransaction, ShardRecord

_MAX_SHOWN: Final = 249
"""The length of the longest topic name; ids of groups and members may be longer, but seldom are."""


class Effect:
    """A consequence of a write. Its state consists of fields, so that a shard with pending writes can be dumped."""

    __slots__ = ()

    def written(self, step: Step) -> None:
        """Process that the records are in the log."""

    def committed(self, step: Step) -> None:
        """Process that the records are committed."""

    def failed(self, step: Step, error: TidelogError) -> None:
        """Process that the records were not written, or that it is unknown whether they will be committed."""


@dataclass(frozen=True, slots=True)
class Answer(Effect):
    """The answer to a call: the response once the records are committed, or else a refusal of the request."""

    call_id: int
    request: GroupRequest
    response: GroupResponse

    def committed(self, step: Step) -> None:
        """Send the response."""
        step.respond(self.call_id, self.response)

    def failed(self, step: Step, error: TidelogError) -> None:
        """Refuse the request."""
        step.respond(self.call_id, refuse_write(self.request, error))


@dataclass(frozen=True, slots=True)
class Write:
    """Records of one group to write as one batch, and the effects that follow, in order."""

    group_id: str
    records: tuple[ShardRecord, ...]
    effects: tuple[Effect, ...] = ()
    offsets: tuple[OffsetChange, ...] = ()
    """The changes of committed offsets that the records contain."""
    transaction: RecordsTransaction | None = None
    """The transaction that the records belong to."""


@dataclass(slots=True)
class Step:
    """The state that a step works with. ``topics`` is None until the topics of the cluster are known.

    Deadlines use ``now_ms``, which never goes back. Records use ``wall_ms``, the wall-clock time.
    """

    now_ms: int
    wall_ms: int
    settings: GroupSettings
    topics: Mapping[str, TopicInfo] | None
    new_member_id: Callable[[str], str]
    """Returns a new member id that begins with the client id or the instance id, as Kafka's ids do."""
    outcomes: list[Write | tuple[int, GroupResponse] | Report] = field(default_factory=list)
    """Writes, responses with their call ids, and log lines, in order."""

    def respond(self, call_id: int, response: GroupResponse) -> None:
        """Answer a call."""
        self.outcomes.append((call_id, response))

    def report(self, text: str, *arguments: object) -> None:
        """Log a change of a group's members, or a phase of its rebalance.

        Clients choose the strings among the arguments. The line has their first ``_MAX_SHOWN`` characters.
        """
        shown = (argument[:_MAX_SHOWN] if isinstance(argument, str) else argument for argument in arguments)
        self.outcomes.append(Report(Level.INFO, text, tuple(shown)))

    def write(
        self,
        group_id: str,
        records: Iterable[ShardRecord] = (),
        *effects: Effect,
        offsets: Iterable[OffsetChange] = (),
        transaction: RecordsTransaction | None = None,
    ) -> None:
        """Request a write of the changed offsets followed by the other records."""
        changes = tuple(offsets)
        written = (*encode_offsets(group_id, changes), *records)
        self.outcomes.append(Write(group_id, written, effects, changes, transaction))
