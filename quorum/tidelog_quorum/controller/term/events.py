"""Events of a controller's terms. The shell gives them to ``ControllerTerm.step`` in the order in which they happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelog_foundation.errors import TidelogError
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.state_machine import Duty
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The quorum has another leader, none, or the same one in another epoch."""

    leader: LeaderAndEpoch


@dataclass(frozen=True, slots=True)
class Committed:
    """Entries are committed; they follow those of the event before without a gap."""

    entries: Sequence[CommittedEntry]


@dataclass(frozen=True, slots=True)
class EntryRead:
    """A large committed entry was applied outside of the core, to the image that was committed before it."""

    entry: CommittedEntry
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A snapshot has taken the place of the log up to its offset."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class Submitted:
    """A client has sent a request; ``is_long`` tells the shell to handle it in a thread."""

    request_id: int
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Handled:
    """The request that :class:`~tidelog_quorum.controller.term.commands.Handle` named has a result."""

    result: Result[object]


@dataclass(frozen=True, slots=True)
class HandlingFailed:
    """The handler of the request has raised, or its records cannot be encoded."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A client has gone away; its request needs no answer, and is not written if nothing of it is yet."""

    request_id: int


@dataclass(frozen=True, slots=True)
class CommitAwaited:
    """A reader wants to know when an offset is committed."""

    request_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class LeadershipWatched:
    """A client wants to hear NOT_CONTROLLER as soon as this controller does not lead."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """The records of :class:`~tidelog_quorum.controller.term.commands.Encode` are encoded."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Proposed:
    """The engine has taken a proposal into its log; it is not committed yet."""

    offset: int


@dataclass(frozen=True, slots=True)
class ProposalFailed:
    """The engine has refused a proposal: NOT_CONTROLLER, or a failure of the engine itself."""

    error: TidelogError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


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
class DutyDue:
    """Requests had their turn between two duties of the tick that began at ``now_ms``."""

    duty: Duty
    now_ms: int


DeferredEvent: TypeAlias = AnnouncementDue | StartDue | WriteDue | QueueDue | DutyDue
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
