"""States of a controller's terms, and of the one job in progress."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.controller.term.events import TaskDue
from tidelog_quorum.metadata.records import MetadataRecord


@dataclass(frozen=True, slots=True)
class Following:
    """Another controller leads, or none does."""


@dataclass(frozen=True, slots=True)
class Elected:
    """This controller leads and has not proposed its announcement."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Announcing:
    """The announcement is the entry at ``offset``. It is not committed yet."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class Starting:
    """The announcement is committed. A new cluster's first records may still be missing."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Serving:
    """This controller handles requests."""

    epoch: int


State: TypeAlias = Following | Elected | Announcing | Starting | Serving


class Stage(enum.Enum):
    """The event that a job waits for."""

    HANDLING = enum.auto()
    """``Handled`` or ``HandlingFailed``."""
    ENCODING = enum.auto()
    """``Encoded``."""
    BACKLOG = enum.auto()
    """A commit that frees space in the backlog, or the end of the leadership."""
    PROPOSING_SLICE = enum.auto()
    PROPOSING_ENTRY = enum.auto()
    """``Proposed`` or ``ProposalFailed``."""
    YIELDING = enum.auto()
    """``WriteDue``."""


@dataclass(slots=True)
class Job:
    """The one request or task in progress, in the epoch in which it began.

    ``slices`` are written one after the other, then ``entry``. A task has no request id; ``following`` is the next one.
    """

    epoch: int
    stage: Stage = Stage.HANDLING
    request_id: int | None = None
    response: object = None
    slices: deque[Sequence[MetadataRecord]] = field(default_factory=deque)
    entry: Sequence[MetadataRecord] = ()
    payload: bytes = b""
    following: TaskDue | None = None
    is_abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """Records that are proposed to the log. Nothing else happens before their outcome is known."""

    state: State
    records: Sequence[MetadataRecord]
    size: int
