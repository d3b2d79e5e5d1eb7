"""Assignments of replicas to log directories that the controller does not have yet (KIP-858).

One call is under way at a time and carries many assignments. The newest assignment of a replica counts, and is repeated
until the controller has it, in whatever order directories fail meanwhile: an assignment to a directory that is offline
tells the controller that the replica is offline too. The queue drops an assignment when the controller no longer has
the partition, or no longer on this node. After a call that failed, in whole or for one replica, the queue backs off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import TopicId
from tidelog_node.hosting.commands import AssignDirectory

MAX_ASSIGNMENTS_PER_REQUEST = 2_250
"""The limit of Kafka's AssignmentsManager."""
_FIRST_BACKOFF_MS = 50
_MAX_BACKOFF_MS = 1_000
OBSOLETE = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Errors of a partition that no longer exists, or no longer on this node."""

ReplicaKey: TypeAlias = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class AssignmentsAnswered:
    """The controller's answer to a call: an error or None for each replica that it names."""

    errors: Mapping[ReplicaKey, ErrorCode | None]


@dataclass(frozen=True, slots=True)
class AssignmentsFailed:
    """A call failed as a whole, or its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class AssignmentsDue:
    """The queue's deadline has passed."""


@dataclass(frozen=True, slots=True)
class SendAssignments:
    """Send these in one call; feed back ``AssignmentsAnswered`` or ``AssignmentsFailed``."""

    assignments: tuple[AssignDirectory, ...]


AssignmentEvent: TypeAlias = AssignDirectory | AssignmentsAnswered | AssignmentsFailed | AssignmentsDue


class AssignmentQueue:
    """The assignments of one node, from ``AssignDirectory`` until the controller has confirmed them."""

    def __init__(self) -> None:
        self._waiting: dict[ReplicaKey, AssignDirectory] = {}
        self._sent: tuple[AssignDirectory, ...] = ()
        self._not_before_ms = 0
        self._backoff_ms = _FIRST_BACKOFF_MS

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which to feed ``AssignmentsDue``, possibly past; None without assignments or during a call."""
        return self._not_before_ms if self._waiting and not self._sent else None

    @property
    def is_retrying(self) -> bool:
        """True if the last call failed, in whole or for one replica."""
        return self._backoff_ms != _FIRST_BACKOFF_MS

    def step(self, event: AssignmentEvent, now_ms: int) -> list[SendAssignments]:
        """Process ``event`` and return the calls to send."""
        match event:
            case AssignDirectory():
                self._waiting[event.topic_id, event.index] = event
            case AssignmentsDue():
                return self._send(now_ms)
            case AssignmentsAnswered():
                self._answered(event, now_ms)
            case AssignmentsFailed():
                self._back_off(now_ms)
            case _:
                assert_never(event)
        return []

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert len(self._sent) <= MAX_ASSIGNMENTS_PER_REQUEST
        # An assignment in flight may need a repetition.
        assert all((sent.topic_id, sent.index) in self._waiting for sent in self._sent)

    def _send(self, now_ms: int) -> list[SendAssignments]:
        if self._sent or not self._waiting or now_ms < self._not_before_ms:
            return []
        self._sent = tuple(self._waiting.values())[:MAX_ASSIGNMENTS_PER_REQUEST]
        return [SendAssignments(self._sent)]

    def _answered(self, event: AssignmentsAnswered, now_ms: int) -> None:
        """Drop the settled assignments."""
        is_done = True
        for sent in self._sent:
            key = (sent.topic_id, sent.index)
            if key not in event.errors or event.errors[key] not in (None, *OBSOLETE):
                is_done = False
            elif self._waiting.get(key) == sent:
                del self._waiting[key]
        if not is_done:
            self._back_off(now_ms)
            return
        self._sent = ()
        self._not_before_ms, self._backoff_ms = now_ms, _FIRST_BACKOFF_MS

    def _back_off(self, now_ms: int) -> None:
        self._sent = ()
        self._not_before_ms = now_ms + self._backoff_ms
        self._backoff_ms = min(2 * self._backoff_ms, _MAX_BACKOFF_MS)
