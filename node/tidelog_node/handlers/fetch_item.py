"""One partition of a fetch in progress, and the replica to which its leader directs a consumer (KIP-392)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId
from tidelog_node.fetching import PartitionKey
from tidelog_node.handlers.context import NodeContext
from tidelog_node.partitions import Partition, ReadResult
from tidelog_node.replication import ReplicaView
from tidelog_node.replication.fetch_session import SessionPartition


@dataclass(slots=True)
class FetchItem:
    """One partition that this request has checked, and the result of its last read.

    ``size`` is the size of the records, even after they were released while the request waits.
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
    """True if this request has read the partition before."""
    is_starved: bool = False
    """True if there may be records but the node's budget has no room for them."""

    @property
    def answers_at_once(self) -> bool:
        """True if the answer need not wait: there is an error, a divergence or a preferred replica."""
        if self.error is not None or self.preferred_replica is not None:
            return True
        return self.read is not None and self.read.diverging is not None

    @property
    def has_all(self) -> bool:
        """True if a later fetch can find nothing more here until the partition is marked as changed."""
        return not self.answers_at_once and self.read is not None and self.read.has_all

    @property
    def is_news(self) -> bool:
        """True if the session's reader must receive this result."""
        if self.answers_at_once or self.size:
            return True
        return self.read is not None and self.entry.is_news(self.read.high_watermark, self.read.log_start_offset)

    def fail(self, error: TidelogError) -> None:
        """Store the error of a read."""
        # The traceback refers to the frames of the whole request.
        self.error, self.read, self.size, self.is_starved = error.detached(), None, 0, False

    def leaves_follower_behind(self) -> bool:
        """Return whether the follower still has deleted records. The deletion waits until the follower learns of it."""
        return self.read is not None and self.entry.spec.log_start_offset < self.read.log_start_offset and self.is_news


def preferred_replica(context: NodeContext, partition: Partition, fetch_offset: int, rack_id: str) -> BrokerId | None:
    """Return the replica that ``replica.selector.class`` selects for a consumer of this rack.

    Return None if the consumer must stay with the leader or this node does not lead. Only in-sync replicas that have
    the offset and whose nodes are alive are selected.
    """
    leader = partition.state.leader
    if leader is None:
        return None
    now_ms, brokers = context.clock.monotonic_ms(), context.metadata.image.brokers
    own = ReplicaView(context.broker_id, context.rack, partition.log.log_end_offset, 0)
    others = [
        ReplicaView(broker_id, brokers[broker_id].rack, progress.log_end_offset, now_ms - progress.caught_up_ms)
        for broker_id, progress in leader.in_sync_followers(fetch_offset)
        if broker_id in brokers and not brokers[broker_id].fenced
    ]
    selected = context.replica_selector.select(rack_id, own, others)
    return None if selected is own else selected.broker_id
