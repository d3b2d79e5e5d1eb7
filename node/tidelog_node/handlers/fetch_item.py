"""One partition of a fetch in progress: its lookup, its result, and the replica to which its leader directs a consumer.

The replica is chosen as in KIP-392.
"""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_node.fetching import FetchResult, PartitionKey
from tidelog_node.handlers.context import NodeContext, check_topic_id, leader_hint
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


def topic_name(context: NodeContext, item: FetchItem) -> str | None:
    """Return the topic's name. A topic requested by id keeps the first name found (Kafka's CachedPartition)."""
    ref, entry = item.key[0], item.entry
    if isinstance(ref, str):
        return ref
    if entry.name is None:
        entry.name = context.metadata.topic_name(ref)
    return entry.name


def partition_of(context: NodeContext, item: FetchItem) -> Partition:
    """Return the node's replica of the partition.

    Raises:
        TidelogError: UNKNOWN_TOPIC_ID, or the error of a partition that is not here or has another topic id.
    """
    topic, topic_id = item.entry.name or topic_name(context, item), item.entry.spec.topic_id
    if topic is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id.hex()}")
    partition = context.partitions.get(topic, item.key[1]) or context.partition(topic, item.key[1])
    check_topic_id(partition, topic, topic_id)
    return partition


def result_of(context: NodeContext, item: FetchItem, *, is_follower: bool) -> FetchResult:
    """Return the result of the last read for the response, and record in the session that its reader receives it."""
    if item.error is not None:
        item.entry.tell_error()
        return _refusal(context, item, item.error)
    read = item.read
    assert read is not None, "a partition that was not read"
    item.entry.tell(read.high_watermark, read.log_start_offset)
    if item.size:
        _measure(item, is_follower=is_follower)
    return FetchResult(
        item.key[1],
        None,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        read.records,
        None if read.aborted is None else [(t.producer_id, t.first_offset) for t in read.aborted],
        read.diverging,
        None,
        item.preferred_replica,
    )


def _measure(item: FetchItem, *, is_follower: bool) -> None:
    assert item.partition is not None, "records come from a partition"
    traffic = item.partition.traffic
    if is_follower:
        traffic.replicated_out += item.size
    else:
        traffic.bytes_out += item.size
        traffic.reads += 1


def _refusal(context: NodeContext, item: FetchItem, error: TidelogError) -> FetchResult:
    result = FetchResult(item.key[1], error)
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and item.partition is not None:
        result.high_watermark = item.partition.high_watermark
        result.log_start_offset = item.partition.log.log_start_offset
    topic = topic_name(context, item)
    if topic is not None:
        result.current_leader = leader_hint(context, error, topic, result.index)
    return result
