"""The protocol of KIP-848: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    INT32,
    STRING,
    Message,
    Structure,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
    structure,
    uuid,
)

NO_OPERATIONS = -(2**31)
"""The value of the authorized operations if the client did not ask for them."""


class HeartbeatTopicPartitions(Structure):
    """Partitions of a topic."""

    topic_id: bytes = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupHeartbeatRequest(Message, api=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible=0):
    """A member's heartbeat. Null means unchanged. From version 1 on the member chooses ``member_id`` (KIP-1082)."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(STRING, nullable=0, default_null=True)
    subscribed_topic_regex: str | None = string(since=1, nullable=1, default=None)
    server_assignor: str | None = string(nullable=0, default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = array(
        HeartbeatTopicPartitions, nullable=0, default_null=True
    )


class HeartbeatAssignment(Structure):
    """A member's assignment."""

    topic_partitions: list[HeartbeatTopicPartitions] = array(HeartbeatTopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, answers=ConsumerGroupHeartbeatRequest):
    """The answer to a heartbeat. A null ``assignment`` means unchanged."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    member_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = structure(HeartbeatAssignment, nullable=0)


class ConsumerGroupDescribeRequest(Message, api=ApiKey.CONSUMER_GROUP_DESCRIBE, versions=(0, 1), flexible=0):
    """The groups to describe."""

    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class DescribedTopicPartitions(Structure):
    """Partitions of a topic, with its name."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


class DescribedAssignment(Structure):
    """A member's current or target assignment."""

    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


class DescribedConsumerGroupMember(Structure):
    """A member. ``member_type`` is 0 for the classic protocol, 1 for the consumer protocol, -1 if unknown."""

    member_id: str = string()
    instance_id: str | None = string(nullable=0, default=None)
    rack_id: str | None = string(nullable=0, default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = string(nullable=0, default=None)
    assignment: DescribedAssignment = structure(DescribedAssignment)
    target_assignment: DescribedAssignment = structure(DescribedAssignment)
    member_type: int = int8(since=1, default=-1)


class DescribedConsumerGroup(Structure):
    """A consumer group."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedConsumerGroupMember] = array(DescribedConsumerGroupMember)
    authorized_operations: int = int32(default=NO_OPERATIONS)


class ConsumerGroupDescribeResponse(Message, answers=ConsumerGroupDescribeRequest):
    """The groups, each once."""

    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
