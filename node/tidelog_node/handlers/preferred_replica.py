"""The replica to which a partition's leader directs a consumer (KIP-392)."""

from __future__ import annotations

from tidelog_foundation.ids import BrokerId
from tidelog_node.handlers.context import NodeContext
from tidelog_node.partitions import Partition
from tidelog_node.replication import ReplicaView


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
