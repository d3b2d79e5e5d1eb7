"""DescribeQuorum, changes of the voters, UnregisterBroker (KIP-595, KIP-836, KIP-853, KIP-631)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    Message,
    Structure,
    array,
    int16,
    int32,
    int64,
    string,
    structure,
    uint16,
    uuid,
)


@dataclass(slots=True)
class QuorumPartition(Structure):
    """A partition of the metadata log. There is only one."""

    partition_index: int = int32()


@dataclass(slots=True)
class QuorumTopic(Structure):
    """The topic of the metadata log."""

    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@dataclass(slots=True)
class DescribeQuorumRequest(Message):
    """A request for the state of the metadata log."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_QUORUM, (0, 2), 0

    topics: list[QuorumTopic] = array(QuorumTopic)


@dataclass(slots=True)
class ReplicaState(Structure):
    """A controller. ``log_end_offset`` is its last offset plus one. Unknown times are -1."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(default=-1, since=1)
    last_caught_up_timestamp: int = int64(default=-1, since=1)


@dataclass(slots=True)
class QuorumPartitionState(Structure):
    """The quorum as its leader sees it."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@dataclass(slots=True)
class QuorumTopicState(Structure):
    """The partitions of the metadata log."""

    topic_name: str = string()
    partitions: list[QuorumPartitionState] = array(QuorumPartitionState)


@dataclass(slots=True)
class QuorumListener(Structure):
    """The address of a controller."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@dataclass(slots=True)
class QuorumNode(Structure):
    """A controller."""

    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


@dataclass(slots=True)
class DescribeQuorumResponse(Message):
    """The state of the quorum."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DESCRIBE_QUORUM, (0, 2), 0

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    topics: list[QuorumTopicState] = array(QuorumTopicState)
    nodes: list[QuorumNode] = array(QuorumNode, since=2)


@dataclass(slots=True)
class UnregisterBrokerRequest(Message):
    """The broker to remove from the cluster."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.UNREGISTER_BROKER, (0, 0), 0

    broker_id: int = int32()


@dataclass(slots=True)
class UnregisterBrokerResponse(Message):
    """The result of the removal."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.UNREGISTER_BROKER, (0, 0), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@dataclass(slots=True)
class AddRaftVoterRequest(Message):
    """The controller to add as a voter. Version 1 is newer than Kafka 4.1."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ADD_RAFT_VOTER, (0, 0), 0

    cluster_id: str | None = string(nullable=0)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumListener] = array(QuorumListener)


@dataclass(slots=True)
class AddRaftVoterResponse(Message):
    """The result of the addition."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.ADD_RAFT_VOTER, (0, 0), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@dataclass(slots=True)
class RemoveRaftVoterRequest(Message):
    """The controller to remove from the voters."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.REMOVE_RAFT_VOTER, (0, 0), 0

    cluster_id: str | None = string(nullable=0)
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@dataclass(slots=True)
class RemoveRaftVoterResponse(Message):
    """The result of the removal."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.REMOVE_RAFT_VOTER, (0, 0), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@dataclass(slots=True)
class KRaftVersionFeature(Structure):
    """The levels of ``kraft.version`` that a controller supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


@dataclass(slots=True)
class UpdateRaftVoterRequest(Message):
    """The controller whose address changes."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.UPDATE_RAFT_VOTER, (0, 0), 0

    cluster_id: str | None = string(nullable=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumListener] = array(QuorumListener)
    k_raft_version_feature: KRaftVersionFeature = structure(KRaftVersionFeature)


@dataclass(slots=True)
class CurrentLeader(Structure):
    """The leading controller. The id is -1 if unknown."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


@dataclass(slots=True)
class UpdateRaftVoterResponse(Message):
    """The result of the change."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.UPDATE_RAFT_VOTER, (0, 0), 0

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = structure(CurrentLeader, tag=0)
