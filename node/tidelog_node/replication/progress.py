"""How far one follower has come, as its leader learns it from the follower's fetches."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.ids import UNKNOWN_OFFSET, BrokerEpoch

NO_BROKER_EPOCH = BrokerEpoch(-1)
NEVER_MS = -(1 << 62)
"""Earlier than every clock's reading."""


@dataclass(slots=True)
class FetchLease:
    """When a follower's fetch session was last used: a fetch of all its partitions that have nothing new (KIP-227).

    Each fetch of the session sets ``last_fetch_ms`` in place of looking at these partitions one by one.
    """

    last_fetch_ms: int


@dataclass(slots=True)
class FollowerProgress:
    """Kafka's ReplicaState: owned and changed by :class:`~tidelog_node.replication.leader.LeaderState` alone.

    ``log_end_offset`` is what the follower has, by its fetch in this leader epoch; unknown before its first one.
    ``log_start_offset`` is where its log started at its last fetch.
    ``last_caught_up_ms`` is the last time at which it had all that the leader had at its previous fetch.
    While there is a ``lease`` the follower has all that the leader has, and every fetch of its session is one of this
    partition at the same offset; before the leader's log grows the lease ends.
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
        """``last_caught_up_ms`` with what the lease adds."""
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
        """Take in a fetch whose offset was found to match the leader's log; ``lease`` is that of its session."""
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
        """Count the last fetch of the lease, and none after it."""
        if self.lease is not None:
            self.last_caught_up_ms = self.caught_up_ms
            self.last_fetch_ms = max(self.last_fetch_ms, self.lease.last_fetch_ms)
            self.lease = None

    def is_caught_up(self, leader_log_end: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower is at the log's end, or was recently (``replica.lag.time.max.ms``)."""
        return self.log_end_offset == leader_log_end or now_ms - self.caught_up_ms <= max_lag_ms

    def expect_nothing(self) -> None:
        """Forget how recently the follower had caught up: it may not come back."""
        self.end_lease()
        self.last_caught_up_ms = NEVER_MS
