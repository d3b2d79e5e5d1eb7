"""Where one assigned partition stands: what to look up or to fetch next, and what the application has seen."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import ErrorCode


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition.

    Either ``fetch_offset`` is known, or ``look_up_ms`` says which offset to look up, or it is ``stopped`` by an error
    until the next seek. ``position`` is what the application gets next, never after ``fetch_offset``.
    """

    topic: str
    partition: int
    generation: int
    fetch_offset: int | None = None
    look_up_ms: int | None = None
    position: int | None = None
    consumed: bool = False
    paused: bool = False
    stopped: bool = False
    busy: bool = False
    asked_node: int = -1
    """The node that is busy with a fetch, asked at ``asked_ms``."""
    asked_ms: float = 0.0
    attempts: int = 0
    not_before_ms: float = 0.0
    served_at: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1
    end_reported_at: int = -1
    reported: ErrorCode | None = None

    def start_at(self, offset: int) -> None:
        """Take the offset that was given or found."""
        self.fetch_offset = self.position = offset
        self.look_up_ms = None

    def restart(self, generation: int) -> None:
        """Drop what is under way or queued, and go on from the application's position."""
        self.generation = generation
        self.busy = False
        if self.fetch_offset is not None:
            self.fetch_offset = self.position
        self.end_reported_at = -1

    def check_invariants(self) -> None:
        """Assert what the class says of its fields."""
        assert (self.fetch_offset is not None) + (self.look_up_ms is not None) + self.stopped == 1, self
        if self.fetch_offset is not None:
            assert self.position is not None, self
            assert 0 <= self.position <= self.fetch_offset, self
