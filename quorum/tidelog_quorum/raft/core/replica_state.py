"""What a leader reports of a replica."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """``match_index`` is known to be on its disk. Times are those of the core's clock, None for never in this term.

    ``last_caught_up_ms`` is when it last had all that the leader had (as Kafka's DescribeQuorum has it).
    """

    replica_id: int
    directory_id: bytes
    is_voter: bool
    match_index: int
    last_contact_ms: int | None
    last_caught_up_ms: int | None
