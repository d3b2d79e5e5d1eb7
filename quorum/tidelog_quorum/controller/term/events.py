"""Events of a controller's terms. The shell feeds them to ``ControllerTerm.step`` in order of occurrence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import PeriodicTask
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The quorum has another leader, none, or the same one in another epoch."""

    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class Committed:
    """Entries are committed. They follow the previous event's entries without a gap."""

    entries: Sequence[CommittedEntry]


@dataclass(frozen=True, slots=True)
class EntryRead:
    """A large committed entry was applied outside the core to the previous committed image."""

    entry: CommittedEntry
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A snapshot replaced the log up to its offset."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client sent a request; ``is_long`` tells the shell to handle it in a thread."""

    request_id: int
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Handled:
    """The request of a :class:`~tidelog_quorum.controller.term.commands.Handle` has a result."""

    result: Result[object]


@dataclass(frozen=True, slots=True)
class HandlingFailed:
    """The handler of the request raised, or its records cannot be encoded."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A client disconnected. Its request needs no answer, and is dropped if nothing of it is written yet."""

    request_id: int


@dataclass(frozen=True, slots=True)
class CommitAwaited:
    """A reader waits for the commit of an offset."""

    request_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LeadershipWatched:
    """A client waits for NOT_CONTROLLER, which it gets as soon as this controller does not lead."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """The records of :class:`~tidelog_quorum.controller.term.commands.Encode` are encoded."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Proposed:
    """The engine appended a proposal to its log. The entry is not committed yet."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposalFailed:
    """The engine refused a proposal: NOT_CONTROLLER, or a failure of the engine itself."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class AnnouncementDue:
    """The engine's step that made this controller the leader of an epoch has ended."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StartDue:
    """The engine's step that committed the announcement of an epoch has ended."""

    epoch: int


@dataclass(frozen=True, slots=True)
class WriteDue:
    """Other work had its turn between two entries of one write."""


@dataclass(frozen=True, slots=True)
class QueueDue:
    """Other work had its turn between two requests."""


@dataclass(frozen=True, slots=True)
class TaskDue:
    """Waiting requests were handled between two tasks of the tick that began at ``now_ms``."""

    task: PeriodicTask
    now_ms: int


DeferredEvent: TypeAlias = AnnouncementDue | StartDue | WriteDue | QueueDue | TaskDue
Event: TypeAlias = (
    LeaderChanged
    | Committed
    | EntryRead
    | SnapshotRead
    | Submitted
    | Handled
    | HandlingFailed
    | Cancelled
    | CommitAwaited
    | LeadershipWatched
    | Encoded
    | Proposed
    | ProposalFailed
    | Tick
    | DeferredEvent
)
