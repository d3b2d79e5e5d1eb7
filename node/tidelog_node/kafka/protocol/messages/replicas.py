"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments (KIP-183, KIP-455, KIP-460, KIP-860)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import INT32, Message, Structure, array, boolean, int8, int16, int32, string


@dataclass(slots=True)
class TopicPartitions(Structure):
    """Partitions of a topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@dataclass(slots=True)
class ElectLeadersRequest(Message):
    """A request for elections. Null requests all partitions. ``election_type`` is 0 for preferred, 1 for unclean."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ELECT_LEADERS, (0, 2), 2

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable=0)
    timeout_ms: int = int32(default=60_000)


@dataclass(slots=True)
class PartitionResult(Structure):
    """The result of one election."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@dataclass(slots=True)
class ReplicaElectionResult(Structure):
    """The elections of a topic's partitions."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


@dataclass(slots=True)
class ElectLeadersResponse(Message):
    """One result per partition. If all were requested, partitions that needed no election have none."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ELECT_LEADERS, (0, 2), 2

    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


@dataclass(slots=True)
class ReassignablePartition(Structure):
    """A partition to reassign. Null replicas cancel the reassignment in progress."""

    partition_index: int = int32()
    replicas: list[int] | None = array(INT32, nullable=0, default_null=True)


@dataclass(slots=True)
class ReassignableTopic(Structure):
    """The partitions of a topic."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@dataclass(slots=True)
class AlterPartitionReassignmentsRequest(Message):
    """Reassignments to begin or cancel."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0

    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@dataclass(slots=True)
class ReassignablePartitionResponse(Structure):
    """The result of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@dataclass(slots=True)
class ReassignableTopicResponse(Structure):
    """The partitions of a topic."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@dataclass(slots=True)
class AlterPartitionReassignmentsResponse(Message):
    """One result per partition."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), 0

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(default=True, since=1)
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@dataclass(slots=True)
class ListPartitionReassignmentsTopics(Structure):
    """Partitions of a topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


@dataclass(slots=True)
class ListPartitionReassignmentsRequest(Message):
    """A request for reassignments. Null requests all that are in progress."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable=0, default_null=True
    )


@dataclass(slots=True)
class OngoingPartitionReassignment(Structure):
    """A reassignment in progress. ``replicas`` includes those being added and removed."""

    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


@dataclass(slots=True)
class OngoingTopicReassignment(Structure):
    """The reassignments of a topic."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@dataclass(slots=True)
class ListPartitionReassignmentsResponse(Message):
    """The reassignments in progress."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
