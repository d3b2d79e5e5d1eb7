"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments (KIP-183, KIP-455, KIP-460, KIP-860)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import INT32, Message, Structure, array, boolean, int8, int16, int32, string


class TopicPartitions(Structure):
    """Partitions of a topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class ElectLeadersRequest(Message, api=ApiKey.ELECT_LEADERS, versions=(0, 2), flexible=2):
    """A request for elections, in all partitions if null. ``election_type`` is 0 for preferred, 1 for unclean."""

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60_000)


class PartitionResult(Structure):
    """The result of one election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class ReplicaElectionResult(Structure):
    """The elections of a topic's partitions."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, answers=ElectLeadersRequest):
    """One result per partition. If all were requested, partitions that needed no election have none."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


class ReassignablePartition(Structure):
    """A partition to reassign. Null replicas cancel the reassignment in progress."""

    partition_index: int = int32()
    replicas: list[int] | None = array(INT32, nullable=0, default_null=True)


class ReassignableTopic(Structure):
    """The partitions of a topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(
    Message, api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), flexible=0
):
    """Reassignments to begin or cancel."""

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class ReassignableTopicResponse(Structure):
    """The partitions of a topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, answers=AlterPartitionReassignmentsRequest):
    """One result per partition."""

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


class ListPartitionReassignmentsTopics(Structure):
    """Partitions of a topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class ListPartitionReassignmentsRequest(Message, api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=(0, 0), flexible=0):
    """A request for the reassignments in progress, of all partitions if null."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=0, default_null=True
    )


class OngoingPartitionReassignment(Structure):
    """A reassignment in progress. ``replicas`` includes those being added and removed."""

    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


class OngoingTopicReassignment(Structure):
    """The reassignments of a topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, answers=ListPartitionReassignmentsRequest):
    """The reassignments in progress."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
