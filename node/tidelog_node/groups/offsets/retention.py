"""The expiry of committed offsets (KIP-211; Kafka's OffsetExpirationCondition)."""

from __future__ import annotations

from tidelog_node.groups.classic import ClassicGroup, ClassicState
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.offsets.committed import CommittedOffsets, TopicPartition
from tidelog_node.groups.records import OffsetCommitValue
from tidelog_node.groups.value_formats import NO_TIMESTAMP


def expired(
    group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets, wall_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose offsets have expired. A partition with a write in progress is kept."""

    def is_over(partition: TopicPartition, value: OffsetCommitValue) -> bool:
        since_ms = _retained_since_ms(group, value)
        if since_ms is None or offsets.pending[partition] or group.is_subscribed_to(partition.topic):
            return False
        if value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= value.expire_timestamp
        return wall_ms - since_ms >= retention_ms

    return [partition for partition, value in offsets.committed.items() if is_over(partition, value)]


def _retained_since_ms(group: ClassicGroup | ConsumerGroup, value: OffsetCommitValue) -> int | None:
    """Return the time at which an offset's retention began, or None if it has not begun."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return value.commit_timestamp
    if group.is_empty:
        # Retention began when the group became empty. Old records do not contain that time.
        return value.commit_timestamp if group.state_timestamp_ms is None else group.state_timestamp_ms
    knows_topics = group.uses_consumer_protocol and group.subscribed_topics is not None
    return value.commit_timestamp if knows_topics and group.state is ClassicState.STABLE else None
