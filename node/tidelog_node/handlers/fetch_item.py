"""One partition of a fetch under way."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId
from tidelog_node.fetching import PartitionKey
from tidelog_node.partitions import Partition, ReadResult
from tidelog_node.replication.fetch_session import SessionPartition


@dataclass(slots=True)
class FetchItem:
    """One partition that this request looked at, and what the last read of it gave.

    ``size`` is that of the records also when they were put away while the request waits.
    """

    key: PartitionKey
    entry: SessionPartition
    partition: Partition | None = None
    read: ReadResult | None = None
    error: TidelogError | None = None
    is_limited: bool = False
    size: int = 0
    is_put_away: bool = False
    preferred_replica: BrokerId | None = None
    is_repeated: bool = False
    """This request has read it before."""
    is_starved: bool = False
    """There may be records, but the node's budget has no room for them."""

    @property
    def answers_at_once(self) -> bool:
        """True if nothing is waited for: there is an error, a divergence, or a better replica."""
        if self.error is not None or self.preferred_replica is not None:
            return True
        return self.read is not None and self.read.diverging is not None

    @property
    def has_all(self) -> bool:
        """True if a later fetch finds nothing else here as long as nobody says that the partition has changed."""
        return not self.answers_at_once and self.read is not None and self.read.has_all

    @property
    def is_news(self) -> bool:
        """True if a session's reader has to hear of it."""
        if self.answers_at_once or self.size:
            return True
        return self.read is not None and self.entry.is_news(self.read.high_watermark, self.read.log_start_offset)

    def fail(self, error: TidelogError) -> None:
        """Take the error of a read."""
        # Its traceback leads to the frames of the whole request.
        self.error, self.read, self.size, self.is_starved = error.detached(), None, 0, False

    def leaves_follower_behind(self) -> bool:
        """True if records were deleted that the follower still has: a deletion waits for it to hear of that."""
        return self.read is not None and self.entry.spec.log_start_offset < self.read.log_start_offset and self.is_news
