"""CreateTopics, DeleteTopics and CreatePartitions (KIP-4, KIP-195, KIP-464, KIP-516, KIP-525)."""

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
    uuid,
)


class CreatableReplicaAssignment(Structure):
    """The brokers of one partition; the first is the preferred leader."""

    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Structure):
    """A setting of a new topic."""

    name: str = string()
    value: str | None = string(nullable=0)


class CreatableTopic(Structure):
    """A topic to create. -1 partitions or replicas mean the defaults and are required for manual assignments."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, api=ApiKey.CREATE_TOPICS, versions=(2, 7), flexible=5):
    """The topics to create. ``validate_only`` validates the request and creates nothing."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Structure):
    """A setting of a created topic (KIP-525)."""

    name: str = string()
    value: str | None = string(nullable=5)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Structure):
    """The result of one topic. ``topic_config_error_code`` applies to ``configs`` alone."""

    name: str = string()
    topic_id: bytes = uuid(since=7)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topic_config_error_code: int = int16(since=5, tag=0, tagged=5)
    num_partitions: int = int32(default=-1, since=5)
    replication_factor: int = int16(default=-1, since=5)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, nullable=5)


class CreateTopicsResponse(Message, answers=CreateTopicsRequest):
    """One result per topic."""

    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


class DeleteTopicState(Structure):
    """A topic by its name, or by its id if the name is null."""

    name: str | None = string(default=None, nullable=6)
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Message, api=ApiKey.DELETE_TOPICS, versions=(1, 6), flexible=4):
    """The topics to delete."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(STRING, until=5)
    timeout_ms: int = int32()


class DeletableTopicResult(Structure):
    """The result of one topic. The name is null if the id is unknown."""

    name: str | None = string(nullable=6)
    topic_id: bytes = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(default=None, since=5, nullable=5)


class DeleteTopicsResponse(Message, answers=DeleteTopicsRequest):
    """One result per topic."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


class CreatePartitionsAssignment(Structure):
    """The brokers of one new partition."""

    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Structure):
    """A topic and its new number of partitions. Null assignments let the controller choose the brokers."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable=0)


class CreatePartitionsRequest(Message, api=ApiKey.CREATE_PARTITIONS, versions=(0, 3), flexible=2):
    """The topics to extend. ``validate_only`` validates the request and adds nothing."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Structure):
    """The result of one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=0)


class CreatePartitionsResponse(Message, answers=CreatePartitionsRequest):
    """One result per topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
