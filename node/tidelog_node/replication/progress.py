"""Progress of one follower, which its leader learns from the follower's fetches."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import UNKNOWN_OFFSET, BrokerEpoch

NO_BROKER_EPOCH = BrokerEpoch(-1)
NEVER_MS = -(1 << 62)
"""A time before every reading of the clock."""


@dataclass(slots=True)
class FetchLease:
    """The last use of a follower's fetch session, which counts as a fetch of its unchanged partitions (KIP-227).

    Each fetch of the session sets ``last_fetch_ms``, so the leader need not visit these partitions one by one.
    """

    last_fetch_ms: int


@dataclass(slots=True)
class FollowerProgress:
    """Kafka's ReplicaState. Only :class:`~tidelog_node.replication.leader.LeaderState` owns and changes it.

    ``log_end_offset`` is the follower's log end by its last fetch in this leader epoch; unknown before the first one.
    ``log_start_offset`` is the start of the follower's log at its last fetch. ``last_caught_up_ms`` is the last time at
    which the follower had reached the leader's log end of its previous fetch. While there is a ``lease`` the follower
    has the leader's whole log, and every fetch of its session counts as a fetch of this partition at the same offset.
    The lease ends before the leader's log grows.
    """

    last_caught_up_ms: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    leader_end_at_last_fetch: int = UNKNOWN_OFFSET
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    lease: FetchLease | None = None

    @property
    def caught_up_ms(self) -> int:
        """``last_caught_up_ms``, including the lease."""
        return self.last_caught_up_ms if self.lease is None else max(self.last_caught_up_ms, self.lease.last_fetch_ms)

    def record_fetch(
        self,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: BrokerEpoch,
        leader_log_end: int,
        now_ms: int,
        lease: FetchLease | None = None,
    ) -> None:
        """Process a fetch whose offset matched the leader's log; ``lease`` is that of its session."""
        self.end_lease()
        if fetch_offset >= leader_log_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.leader_end_at_last_fetch != UNKNOWN_OFFSET and fetch_offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_log_end
        self.broker_epoch = broker_epoch
        self.lease = lease if fetch_offset == leader_log_end else None

    def end_lease(self) -> None:
        """Count the last fetch of the lease and drop the lease."""
        if self.lease is not None:
            self.last_caught_up_ms = self.caught_up_ms
            self.last_fetch_ms = max(self.last_fetch_ms, self.lease.last_fetch_ms)
            self.lease = None

    def is_caught_up(self, leader_log_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return True if the follower is at the log's end, or was recently (``replica.lag.time.max.ms``)."""
        return self.log_end_offset == leader_log_end or now_ms - self.caught_up_ms <= max_lag_ms

    def forget_offsets(self) -> None:
        """Forget the follower's log, because the leader's has been truncated."""
        self.end_lease()
        self.log_end_offset = self.leader_end_at_last_fetch = UNKNOWN_OFFSET

    def expect_nothing(self) -> None:
        """Reset the last caught-up time: the follower may not come back."""
        self.end_lease()
        self.last_caught_up_ms = NEVER_MS
