"""How fast a node sends and fetches throttled replicas: its two quotas with its clock (KIP-73).

Which replicas are throttled, a topic's ``leader.replication.throttled.replicas`` and
``follower.replication.throttled.replicas`` say; how fast, the node's ``leader.replication.throttled.rate`` and
``follower.replication.throttled.rate``. In order that ISRs keep still, a replica that is in sync never waits, on either
side; its bytes count nevertheless.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import BrokerId
from tidelog_node.partitions.clock import Clock
from tidelog_node.replication.quota import ReplicationQuota, is_throttled


@dataclass(frozen=True, slots=True)
class ThrottledSides:
    """Whether a replica is throttled: what it sends as a leader, and what it fetches as a follower."""

    leader: bool
    follower: bool

    @classmethod
    def of(cls, config: TopicConfig, index: int, broker_id: BrokerId) -> ThrottledSides:
        """Return what a topic's settings say of a partition's replica."""
        return cls(
            is_throttled(config.leader_replication_throttled_replicas, index, broker_id),
            is_throttled(config.follower_replication_throttled_replicas, index, broker_id),
        )


class ReplicationThrottle:
    """One side of a node: what it sends as a leader, or what it fetches as a follower."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quota = ReplicationQuota()

    @property
    def bytes_per_second(self) -> int:
        """The limit."""
        return self._quota.bytes_per_second

    @property
    def is_exceeded(self) -> bool:
        """Whether a throttled replica that is not in sync has to wait."""
        return self._quota.is_exceeded(self._clock.monotonic_ms())

    @property
    def transfer_bytes(self) -> int:
        """The most that one response should have of throttled replicas that are not in sync."""
        return self._quota.transfer_bytes

    def wait_ms(self) -> int:
        """Return for how many milliseconds they have to wait; 0 while the limit is kept."""
        return self._quota.wait_ms(self._clock.monotonic_ms())

    def record(self, size: int) -> None:
        """Note bytes of throttled replicas, in sync or not."""
        self._quota.record(size, self._clock.monotonic_ms())

    def change_rate(self, bytes_per_second: int) -> None:
        """Take over another limit."""
        self._quota.change_rate(bytes_per_second)


class ReplicationThrottles:
    """Both sides; one per node. Without :meth:`change_rates` nothing is limited."""

    def __init__(self, clock: Clock) -> None:
        self.leader = ReplicationThrottle(clock)
        self.follower = ReplicationThrottle(clock)

    def change_rates(self, leader_bytes_per_second: int, follower_bytes_per_second: int) -> None:
        """Take over ``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate``."""
        self.leader.change_rate(leader_bytes_per_second)
        self.follower.change_rate(follower_bytes_per_second)
