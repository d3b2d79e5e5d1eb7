"""A leader's report of a replica."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of one replica; ``match_index`` is known to be on its disk.

    Times are those of the core's clock, None for never in this term. ``last_caught_up_ms`` is the last time at which it
    had all of the leader's entries (as in Kafka's DescribeQuorum).
    """

    replica_id: int
    directory_id: bytes
    is_voter: bool
    match_index: int
    last_contact_ms: int | None
    last_caught_up_ms: int | None
