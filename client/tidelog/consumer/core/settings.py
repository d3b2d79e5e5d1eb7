"""The settings that a consumer's decisions depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionSettings:
    """The settings of the fetch positions. With ``reset_timestamp_ms`` None, a reset reports an error."""

    queue_bytes: int
    reset_timestamp_ms: int | None
    report_end: bool
    queue_messages: int | None = None
    """The most messages of one partition that wait for the application; None leaves only the limit ``queue_bytes``."""
    overdue_ms: float = 1_500
    """The age of an overdue fetch, above the longest wait of a node for records."""
    preferred_ms: float = 300_000
    """The time for which a preferred replica is read before the leader is asked again."""
    has_group: bool = False
    """True if a partition without an offset starts at the group's committed offset."""
