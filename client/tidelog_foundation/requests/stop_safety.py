"""The obstacles to stopping a process of the cluster."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.requests.request import Request

LAST_IN_SYNC_REPLICA: Final = "last_in_sync_replica"
"""The partition would lose its last in-sync replica that lives, although it has others: it would go offline."""
BELOW_MIN_INSYNC_REPLICAS: Final = "below_min_insync_replicas"
"""The partition would fall below ``min.insync.replicas``, although it has a replica to spare: no acks=all."""
NOT_REDUNDANT: Final = "not_redundant"
"""The partition or the quorum has no replica to spare even when all are in sync, so that no wait helps."""
ALREADY_BELOW: Final = "already_below_min_insync_replicas"
"""The partition is below ``min.insync.replicas`` already. It is named, but does not stand against the stop."""
QUORUM_MAJORITY: Final = "quorum_majority"
"""The controllers that would be left, live and caught up, are no majority of the voters."""

WAITING_HELPS: Final = frozenset({LAST_IN_SYNC_REPLICA, BELOW_MIN_INSYNC_REPLICAS, QUORUM_MAJORITY})
MAX_NAMED_OBSTACLES: Final = 100
"""The number of obstacles that a response names."""


@dataclass(frozen=True, slots=True)
class StopObstacle:
    """A partition that needs the node, or the quorum that needs the controller; then ``topic`` is empty.

    ``in_sync`` are the live members of the ISR, or the live and caught-up voters, with the process that would stop.
    ``required`` is the number of them that must be left.
    """

    kind: str
    topic: str
    partition: int
    in_sync: tuple[int, ...]
    required: int


@dataclass(frozen=True, slots=True)
class StopObstacleCount:
    """The number of obstacles of one kind."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class DescribeStopSafetyResponse:
    """The obstacles, at most ``MAX_NAMED_OBSTACLES`` by name, and the number of each kind."""

    obstacles: tuple[StopObstacle, ...] = ()
    counts: tuple[StopObstacleCount, ...] = ()

    def is_safe(self, *, ignores_unreplicated: bool = False) -> bool:
        """Return whether the process can stop and nothing becomes unavailable.

        With ``ignores_unreplicated``, what has no replica to spare does not count.
        """
        harmless = {ALREADY_BELOW} | ({NOT_REDUNDANT} if ignores_unreplicated else set())
        return all(each.kind in harmless for each in self.counts)

    @property
    def waiting_helps(self) -> bool:
        """Whether some of the obstacles can pass by themselves."""
        return any(each.kind in WAITING_HELPS for each in self.counts)


@dataclass(frozen=True, slots=True)
class DescribeStopSafetyRequest(Request[DescribeStopSafetyResponse]):
    """A request for what stands against stopping a node, or a controller with ``is_controller``."""

    process_id: int
    is_controller: bool = False
