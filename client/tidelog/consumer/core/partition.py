"""The state of one assigned partition: its next request, the application's position, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.consumer.core.events import FetchSpec, Validated, ValidationSpec
from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError, error_for

CanRead = Callable[[str, int, int], bool]
"""Returns True if a node can replace the leader for reads: it is known, and its replica is online."""


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition.

    Exactly one of these holds: ``fetch_offset`` is known, ``look_up_ms`` tells which offset to look up,
    ``wants_committed`` is set, or an error has ``stopped`` the partition until the next seek. ``position`` is the
    application's next offset and never exceeds ``fetch_offset``.
    """

    topic: str
    partition: int
    generation: int
    fetch_offset: int | None = None
    look_up_ms: int | None = None
    wants_committed: bool = False
    """True until the group's committed offset, its starting point, is known."""
    position: int | None = None
    consumed: bool = False
    paused: bool = False
    stopped: bool = False
    busy: bool = False
    asked_node: int = -1
    """The node of the pending fetch, sent at ``asked_ms``."""
    asked_ms: float = 0.0
    attempts: int = 0
    failure: TidelogError | None = None
    """The error of the latest of ``attempts``."""
    not_before_ms: float = 0.0
    served_at: int = 0
    high_watermark: int = -1
    end_offset: int = -1
    """The end of the readable records: the high watermark or the last stable offset."""
    log_start_offset: int = -1
    end_reported_at: int = -1
    reported: ErrorCode | None = None
    offset_epoch: int = -1
    """The leader epoch of the record before ``fetch_offset``, or of a later one; -1 if unknown."""
    leader: tuple[int, int] | None = None
    """The leader and epoch for which the position was last validated."""
    must_validate: bool = False
    """True after a change of leader, until its log is known to contain the records read (KIP-320)."""
    preferred_node: int | None = None
    """The replica to read from instead of the leader, until ``preferred_until_ms`` (KIP-392)."""
    preferred_until_ms: float = 0.0

    def start_at(self, offset: int, epoch: int = -1) -> None:
        """Start at a given or found offset; ``epoch`` belongs to the record before it or to a later one."""
        self.fetch_offset = self.position = offset
        self.look_up_ms = None
        self.wants_committed = False
        self.offset_epoch = epoch
        self.must_validate = False

    def follow_leader(self, leader: tuple[int, int]) -> None:
        """Adopt the leader and epoch from the metadata."""
        if leader == self.leader:
            return
        self.must_validate |= self.leader is not None and self.offset_epoch >= 0
        self.leader = leader
        self.preferred_node = None

    @property
    def waiting_offsets(self) -> int:
        """The number of offsets fetched and not returned to the application; at least the number of
        waiting messages.
        """
        return 0 if self.fetch_offset is None or self.position is None else self.fetch_offset - self.position

    @property
    def is_from_leader(self) -> bool:
        """True if the last fetch went to the leader."""
        return self.leader is not None and self.asked_node == self.leader[0]

    def read_from(self, leader_id: int, now_ms: float, can_read: CanRead) -> int | None:
        """Return the node to read from: the preferred one while it is usable, else the leader.

        None means that the leader has just named a node that the metadata lacks; it would name that node again.
        """
        node_id, self.preferred_node = self.preferred_node, None
        if node_id is None or now_ms >= self.preferred_until_ms:
            return leader_id
        if can_read(self.topic, self.partition, node_id):
            self.preferred_node = node_id
            return node_id
        return None if self.is_from_leader else leader_id

    def fetch_spec(self, leader_epoch: int) -> FetchSpec:
        """Return the next fetch."""
        assert self.fetch_offset is not None
        return FetchSpec(self.topic, self.partition, self.generation, self.fetch_offset, leader_epoch)

    def validation(self, leader_epoch: int) -> ValidationSpec:
        """Return the leader validation for the position, and mark the partition as busy."""
        self.busy = True
        return ValidationSpec(self.topic, self.partition, self.generation, self.offset_epoch, leader_epoch)

    def truncate_to(self, offset: int, epoch: int) -> None:
        """Continue at the end of the leader's log, and deliver nothing after it."""
        assert self.position is not None
        self.fetch_offset = self.position = min(self.position, offset)
        self.offset_epoch = epoch
        self.must_validate = False

    def clear_start(self) -> None:
        """Clear the starting point."""
        self.fetch_offset = self.look_up_ms = None
        self.wants_committed = False

    def restart(self, generation: int) -> None:
        """Drop pending fetches and queued records, and continue at the application's position."""
        self.generation = generation
        self.busy = False
        if self.fetch_offset is not None:
            self.fetch_offset = self.position
        self.end_reported_at = -1

    def hindrance(self, *, has_leader: bool) -> str | None:
        """Return the reason why a fetch is impossible, or None if one can be in flight.

        A starting offset that is still being looked up is no obstacle.
        """
        if self.paused or self.stopped or self.fetch_offset is None:
            return None
        if self.attempts and self.failure is not None:
            return f"{self.topic}-{self.partition}: {self.failure}"
        return None if has_leader else f"{self.topic}-{self.partition} has no leader"

    def check_invariants(self) -> None:
        """Assert the invariants in the class's docstring."""
        starts = (self.fetch_offset is not None, self.look_up_ms is not None, self.wants_committed, self.stopped)
        assert sum(starts) == 1, self
        if self.fetch_offset is not None:
            assert self.position is not None, self
            assert 0 <= self.position <= self.fetch_offset, self


REPORTED = OUTAGES | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Errors that are retried but reported once, because the application may be waiting in vain."""
REBALANCING = frozenset(
    (
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    )
)
"""Errors of a request for committed offsets that are retried unless the group revokes the partition."""
_RETRIED = OUTAGES | REBALANCING


def may_pass(error: TidelogError) -> bool:
    """Return True if the same request may succeed later."""
    return error.code.retriable or error.code in _RETRIED


def without_offset(state: PartitionState) -> TidelogError:
    """Return the error of a partition without a starting offset."""
    return error_for(ErrorCode._AUTO_OFFSET_RESET, f"{_name(state)} has no offset to start from")


def truncated(state: PartitionState, event: Validated) -> TidelogError:
    """Return the error of a log that no longer has the records read (KIP-320)."""
    text = f"{_name(state)}: offset {state.fetch_offset} after leader epoch {event.spec.offset_epoch} is not in the log"
    text += f" any more: epoch {event.epoch} ends at {event.end_offset}"
    return error_for(ErrorCode._LOG_TRUNCATION, text)


def without_progress(state: PartitionState, size: int) -> TidelogError:
    """Return the error of an answer whose records do not reach the requested offset."""
    text = f"{_name(state)}: {size} bytes were fetched at offset {state.fetch_offset}, but no record at or after it"
    return error_for(ErrorCode.CORRUPT_MESSAGE, text)


def end_reached(state: PartitionState, offset: int) -> TidelogError:
    """Return the event for the end of a partition, at ``offset``."""
    return error_for(ErrorCode._PARTITION_EOF, f"{_name(state)}: no record after offset {offset - 1} yet")


def _name(state: PartitionState) -> str:
    return f"{state.topic}-{state.partition}"
