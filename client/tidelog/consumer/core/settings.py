"""The settings that a consumer's decisions depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionSettings:
    """The settings that the positions decide by; ``reset_timestamp_ms`` None reports an error instead."""

    queue_bytes: int
    reset_timestamp_ms: int | None
    report_end: bool
    queue_messages: int | None = None
    """The most messages of one partition that wait for the application; None: ``queue_bytes`` alone counts."""
    overdue_ms: float = 1_500
    """Above the time that a node may wait for records."""
    preferred_ms: float = 300_000
    """How long another replica than the leader is read from before the leader is asked again."""
    has_group: bool = False
    """Whether a partition without an offset starts at what the group has committed, where it has."""
