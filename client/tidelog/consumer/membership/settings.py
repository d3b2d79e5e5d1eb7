"""The settings that determine a membership's decisions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """One consumer's settings under their usual names; those of the other protocol are ignored.

    ``max_poll_interval_ms`` is also the rebalance timeout, as in Kafka. ``assignors`` are names in order of preference
    (``partition.assignment.strategy``). ``remote_assignor`` is the server's (``group.remote.assignor``); the server
    chooses if it is empty.
    """

    group_id: str
    group_protocol: str = "classic"
    group_instance_id: str | None = None
    client_rack: str | None = None
    assignors: tuple[str, ...] = ("range", "roundrobin")
    remote_assignor: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    request_timeout_ms: int = 30_000

    @property
    def is_static(self) -> bool:
        """True if the member keeps its place in the group across a restart (KIP-345)."""
        return self.group_instance_id is not None
