"""Where one assigned partition stands: what to look up or to fetch next, and what the application has seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.consumer.core.events import FetchSpec, ValidationSpec
from tidelog_foundation.errors import ErrorCode, TidelogError

CanRead = Callable[[str, int, int], bool]
"""Whether a node can be read from in a partition leader's place: it is known, and its replica not offline."""


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition.

    Either ``fetch_offset`` is known, or ``look_up_ms`` says which offset to look up, or it ``wants_committed``, or it
    is ``stopped`` by an error until the next seek. ``position`` is what the application gets next, never after
    ``fetch_offset``.
    """

    topic: str
    partition: int
    generation: int
    fetch_offset: int | None = None
    look_up_ms: int | None = None
    wants_committed: bool = False
    """It starts at the group's committed offset, which is not known yet."""
    position: int | None = None
    consumed: bool = False
    paused: bool = False
    stopped: bool = False
    busy: bool = False
    asked_node: int = -1
    """The node that is busy with a fetch, asked at ``asked_ms``."""
    asked_ms: float = 0.0
    attempts: int = 0
    failure: TidelogError | None = None
    """Why the latest of ``attempts`` failed."""
    not_before_ms: float = 0.0
    served_at: int = 0
    high_watermark: int = -1
    end_offset: int = -1
    """Where its records end for this reader: the high watermark, or the last stable offset."""
    log_start_offset: int = -1
    end_reported_at: int = -1
    reported: ErrorCode | None = None
    offset_epoch: int = -1
    """The leader epoch of the record before ``fetch_offset``, or of a later one; -1 when it is not known."""
    leader: tuple[int, int] | None = None
    """The leader and its epoch that the position was last known to be right for."""
    must_validate: bool = False
    """There is another leader than before: is what was read of the log still in it (KIP-320)?"""
    preferred_node: int | None = None
    """Where to read in place of the leader, until ``preferred_until_ms`` (KIP-392)."""
    preferred_until_ms: float = 0.0

    def start_at(self, offset: int, epoch: int = -1) -> None:
        """Take the offset that was given or found; ``epoch`` is that of the record before it or of a later one."""
        self.fetch_offset = self.position = offset
        self.look_up_ms = None
        self.wants_committed = False
        self.offset_epoch = epoch
        self.must_validate = False

    def follow_leader(self, leader: tuple[int, int]) -> None:
        """Take the leader and its epoch as the metadata has them."""
        if leader == self.leader:
            return
        self.must_validate |= self.leader is not None and self.offset_epoch >= 0
        self.leader = leader
        self.preferred_node = None

    @property
    def waiting_offsets(self) -> int:
        """How many offsets were fetched and not returned to the application: at least as many as messages wait."""
        return 0 if self.fetch_offset is None or self.position is None else self.fetch_offset - self.position

    @property
    def is_from_leader(self) -> bool:
        """Whether the node that was asked last is the leader, and no other replica."""
        return self.leader is not None and self.asked_node == self.leader[0]

    def read_from(self, leader_id: int, now_ms: float, can_read: CanRead) -> int | None:
        """Return the node to read from: the preferred one while it may be used, else the leader.

        None: the leader has just named a node that the metadata does not have; it would name that again.
        """
        node_id, self.preferred_node = self.preferred_node, None
        if node_id is None or now_ms >= self.preferred_until_ms:
            return leader_id
        if can_read(self.topic, self.partition, node_id):
            self.preferred_node = node_id
            return node_id
        return None if self.is_from_leader else leader_id

    def fetch_spec(self, leader_epoch: int) -> FetchSpec:
        """Return what is to be fetched next."""
        assert self.fetch_offset is not None
        return FetchSpec(self.topic, self.partition, self.generation, self.fetch_offset, leader_epoch)

    def validation(self, leader_epoch: int) -> ValidationSpec:
        """Return what the leader is to be asked of the position; the partition is busy from now on."""
        self.busy = True
        return ValidationSpec(self.topic, self.partition, self.generation, self.offset_epoch, leader_epoch)

    def truncate_to(self, offset: int, epoch: int) -> None:
        """Go on where the leader's log leaves what was read, of which nothing behind is delivered any more."""
        assert self.position is not None
        self.fetch_offset = self.position = min(self.position, offset)
        self.offset_epoch = epoch
        self.must_validate = False

    def clear_start(self) -> None:
        """Forget where to read from."""
        self.fetch_offset = self.look_up_ms = None
        self.wants_committed = False

    def restart(self, generation: int) -> None:
        """Drop what is under way or queued, and go on from the application's position."""
        self.generation = generation
        self.busy = False
        if self.fetch_offset is not None:
            self.fetch_offset = self.position
        self.end_reported_at = -1

    def hindrance(self, *, has_leader: bool) -> str | None:
        """Return why nothing can be fetched, None where a fetch can be under way.

        What is asked for elsewhere, the place to start at, is no hindrance.
        """
        if self.paused or self.stopped or self.fetch_offset is None:
            return None
        if self.attempts and self.failure is not None:
            return f"{self.topic}-{self.partition}: {self.failure}"
        return None if has_leader else f"{self.topic}-{self.partition} has no leader"

    def check_invariants(self) -> None:
        """Assert what the class says of its fields."""
        starts = (self.fetch_offset is not None, self.look_up_ms is not None, self.wants_committed, self.stopped)
        assert sum(starts) == 1, self
        if self.fetch_offset is not None:
            assert self.position is not None, self
            assert 0 <= self.position <= self.fetch_offset, self
