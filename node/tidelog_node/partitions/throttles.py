"""A node's two replication quotas, for sending and fetching throttled replicas, with its clock (KIP-73).

A topic's ``leader.replication.throttled.replicas`` and ``follower.replication.throttled.replicas`` select the throttled
replicas. The node's ``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate`` set the rates. An
in-sync replica never waits on either side, so that ISRs stay stable, but its bytes count.
"""

from __future__ import annotations

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId
from tidelog_node.event_loop import Clock
from tidelog_node.replication.quota import ReplicationQuota, is_throttled


@dataclass(frozen=True, slots=True)
class ThrottledSides:
    """The throttled sides of a replica: sending as a leader, and fetching as a follower."""

    leader: bool
    follower: bool

    @classmethod
    def of(cls, config: TopicConfig, index: int, broker_id: BrokerId) -> ThrottledSides:
        """Return the throttled sides of a partition's replica from the topic's settings."""
        return cls(
            is_throttled(config.leader_replication_throttled_replicas, index, broker_id),
            is_throttled(config.follower_replication_throttled_replicas, index, broker_id),
        )


class ReplicationThrottle:
    """The throttle of one side of a node: of sending as a leader, or of fetching as a follower."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quota = ReplicationQuota()

    @property
    def bytes_per_second(self) -> int:
        """The limit in bytes per second."""
        return self._quota.bytes_per_second

    @property
    def is_exceeded(self) -> bool:
        """True while throttled replicas out of sync have to wait."""
        return self._quota.is_exceeded(self._clock.monotonic_ms())

    @property
    def transfer_bytes(self) -> int:
        """The most bytes of throttled replicas out of sync that one response should contain."""
        return self._quota.transfer_bytes

    def wait_ms(self) -> int:
        """Return the wait of throttled replicas out of sync, in ms; 0 while the limit is not exceeded."""
        return self._quota.wait_ms(self._clock.monotonic_ms())

    def record(self, size: int) -> None:
        """Count bytes of throttled replicas, in sync or not."""
        self._quota.record(size, self._clock.monotonic_ms())

    def change_rate(self, bytes_per_second: int) -> None:
        """Change the limit."""
        self._quota.change_rate(bytes_per_second)


class ReplicationThrottles:
    """The node's throttles for both sides. They set no limit until the first :meth:`change_rates`."""

    def __init__(self, clock: Clock) -> None:
        self.leader = ReplicationThrottle(clock)
        self.follower = ReplicationThrottle(clock)

    def change_rates(self, leader_bytes_per_second: int, follower_bytes_per_second: int) -> None:
        """Apply ``leader.replication.throttled.rate`` and ``follower.replication.throttled.rate``."""
        self.leader.change_rate(leader_bytes_per_second)
        self.follower.change_rate(follower_bytes_per_second)
