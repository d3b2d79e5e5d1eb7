"""Which offsets have expired (KIP-211; Kafka's OffsetExpirationCondition)."""

from __future__ import annotations

from tidelog_node.groups.classic import ClassicGroup, ClassicState
from tidelog_node.groups.consumer import ConsumerGroup
from tidelog_node.groups.offsets.committed import CommittedOffsets, TopicPartition
from tidelog_node.groups.records import OffsetCommitValue
from tidelog_node.groups.value_formats import NO_TIMESTAMP


def expired(
    group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets, wall_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose offsets are to go; one with a write under way stays."""

    def is_over(partition: TopicPartition, value: OffsetCommitValue) -> bool:
        since_ms = _retained_since_ms(group, value)
        if since_ms is None or offsets.pending[partition] or group.is_subscribed_to(partition.topic):
            return False
        if value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= value.expire_timestamp
        return wall_ms - since_ms >= retention_ms

    return [partition for partition, value in offsets.committed.items() if is_over(partition, value)]


def _retained_since_ms(group: ClassicGroup | ConsumerGroup, value: OffsetCommitValue) -> int | None:
    """Return when an offset's retention began; None while it does not."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return value.commit_timestamp
    if group.is_empty:
        # Since it has no members; in a record of old that is not said.
        return value.commit_timestamp if group.state_timestamp_ms is None else group.state_timestamp_ms
    knows_topics = group.uses_consumer_protocol and group.subscribed_topics is not None
    return value.commit_timestamp if knows_topics and group.state is ClassicState.STABLE else None
