"""Metadata of the cluster and its topics: Metadata, DescribeCluster, DescribeTopicPartitions (KIP-966)."""

from __future__ import annotations

from typing import Final

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    Kind,
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

NO_OPERATIONS: Final = -(2**31)
"""The value of the authorized operations if the client did not ask for them."""


class MetadataRequestTopic(Structure):
    """A topic, by name or from version 12 on also by id."""

    topic_id: bytes = uuid(since=10)
    name: str | None = string(nullable=10)


class MetadataRequest(Message, api=ApiKey.METADATA, versions=(0, 13), flexible=9):
    """A request for metadata. ``topics`` is null to request all topics, and in version 0 empty."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable=1)
    allow_auto_topic_creation: bool = boolean(default=True, since=4)
    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    include_topic_authorized_operations: bool = boolean(since=8)


class MetadataResponseBroker(Structure):
    """A broker, with its address on the listener of the request."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, since=1, nullable=1)


class MetadataResponsePartition(Structure):
    """A partition. The leader is -1 if there is none or if the client cannot reach it."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1, since=7)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    offline_replicas: list[int] = array(Kind.INT32, since=5)


class MetadataResponseTopic(Structure):
    """A topic. It has no name if the id is unknown."""

    error_code: int = int16()
    name: str | None = string(nullable=12)
    topic_id: bytes = uuid(since=10)
    is_internal: bool = boolean(since=1)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32(default=NO_OPERATIONS, since=8)


class MetadataResponse(Message, answers=MetadataRequest):
    """Brokers and topics."""

    throttle_time_ms: int = int32(since=3)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string(default=None, since=2, nullable=2)
    controller_id: int = int32(default=-1, since=1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32(default=NO_OPERATIONS, since=8, until=10)
    error_code: int = int16(since=13)


class DescribeClusterRequest(Message, api=ApiKey.DESCRIBE_CLUSTER, versions=(0, 2), flexible=0):
    """A request for the cluster's nodes. ``endpoint_type`` is 1 for brokers and 2 for controllers (KIP-919)."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(default=1, since=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Structure):
    """A broker, with its address on the listener of the request."""

    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(default=None, nullable=0)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Message, answers=DescribeClusterRequest):
    """The cluster."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)
    endpoint_type: int = int8(default=1, since=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=NO_OPERATIONS)


class Cursor(Structure):
    """The first partition that has not been returned yet."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribedTopicName(Structure):
    """A topic to describe."""

    name: str = string()


class DescribeTopicPartitionsRequest(Message, api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), flexible=0):
    """A request for topics and their partitions, for all topics if ``topics`` is empty."""

    topics: list[DescribedTopicName] = array(DescribedTopicName)
    response_partition_limit: int = int32(default=2_000)
    cursor: Cursor | None = structure(Cursor, nullable=0)


class DescribedPartition(Structure):
    """A partition with its eligible leader replicas."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(Kind.INT32)
    isr_nodes: list[int] = array(Kind.INT32)
    eligible_leader_replicas: list[int] | None = array(Kind.INT32, default_null=True, nullable=0)
    last_known_elr: list[int] | None = array(Kind.INT32, default_null=True, nullable=0)
    offline_replicas: list[int] = array(Kind.INT32)


class DescribedTopic(Structure):
    """A topic with some of its partitions."""

    error_code: int = int16()
    name: str | None = string(nullable=0)
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribedPartition] = array(DescribedPartition)
    topic_authorized_operations: int = int32(default=NO_OPERATIONS)


class DescribeTopicPartitionsResponse(Message, answers=DescribeTopicPartitionsRequest):
    """The partitions. ``next_cursor`` is the start of the next request, null if all were returned."""

    throttle_time_ms: int = int32()
    topics: list[DescribedTopic] = array(DescribedTopic)
    next_cursor: Cursor | None = structure(Cursor, nullable=0)
