"""The state of a fetcher's partitions, and what their leader's session stores of them."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import LeaderEpoch
from tidelog_node.partitions.partition import Partition


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """A partition of a fetcher; ``pause_until_ms`` and ``backoff_ms`` grow with consecutive errors.

    ``failing_with`` is the last of these errors, None after a success. ``is_in_sync`` is True if the log had reached
    the leader's high watermark after the last answer.
    """

    partition: Partition
    leader_epoch: LeaderEpoch
    pause_until_ms: int = 0
    backoff_ms: int = 0
    failing_with: ErrorCode | None = None
    is_in_sync: bool = False

    @property
    def is_limited(self) -> bool:
        """True if the partition waits while the node's limit is exceeded."""
        return self.partition.throttled.follower and not self.is_in_sync


class WantedRecords(NamedTuple):
    """A partition's request as the leader's session stores it."""

    fetched: FetchedPartition
    offset: int
    max_bytes: int
    last_fetched_epoch: LeaderEpoch
    log_start_offset: int
