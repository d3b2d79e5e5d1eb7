"""DescribeQuorum, changes of the voters, UnregisterBroker, UpdateFeatures (KIP-595, 836, 853, 631, 584, 1022)."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import (
    Message,
    Structure,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    structure,
    uint16,
    uuid,
)


class QuorumPartition(Structure):
    """A partition of the metadata log. There is only one."""

    partition_index: int = int32()


class QuorumTopic(Structure):
    """The topic of the metadata log."""

    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


class DescribeQuorumRequest(Message, api=ApiKey.DESCRIBE_QUORUM, versions=(0, 2), flexible=0):
    """A request for the state of the metadata log."""

    topics: list[QuorumTopic] = array(QuorumTopic)


class ReplicaState(Structure):
    """A controller. ``log_end_offset`` is its last offset plus one. Unknown times are -1."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid(since=2)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64(default=-1, since=1)
    last_caught_up_timestamp: int = int64(default=-1, since=1)


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


class QuorumTopicState(Structure):
    """The partitions of the metadata log."""

    topic_name: str = string()
    partitions: list[QuorumPartitionState] = array(QuorumPartitionState)


class QuorumListener(Structure):
    """The address of a controller."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class QuorumNode(Structure):
    """A controller."""

    node_id: int = int32()
    listeners: list[QuorumListener] = array(QuorumListener)


class DescribeQuorumResponse(Message, answers=DescribeQuorumRequest):
    """The state of the quorum."""

    error_code: int = int16()
    error_message: str | None = string(since=2, nullable=2)
    topics: list[QuorumTopicState] = array(QuorumTopicState)
    nodes: list[QuorumNode] = array(QuorumNode, since=2)


class UnregisterBrokerRequest(Message, api=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0):
    """The broker to remove from the cluster."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Message, answers=UnregisterBrokerRequest):
    """The result of the removal."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class AddRaftVoterRequest(Message, api=ApiKey.ADD_RAFT_VOTER, versions=(0, 0), flexible=0):
    """The controller to add as a voter. Version 1 is newer than Kafka 4.1."""

    cluster_id: str | None = string(nullable=0)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumListener] = array(QuorumListener)


class AddRaftVoterResponse(Message, answers=AddRaftVoterRequest):
    """The result of the addition."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class RemoveRaftVoterRequest(Message, api=ApiKey.REMOVE_RAFT_VOTER, versions=(0, 0), flexible=0):
    """The controller to remove from the voters."""

    cluster_id: str | None = string(nullable=0)
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


class RemoveRaftVoterResponse(Message, answers=RemoveRaftVoterRequest):
    """The result of the removal."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class KRaftVersionFeature(Structure):
    """The levels of ``kraft.version`` that a controller supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class UpdateRaftVoterRequest(Message, api=ApiKey.UPDATE_RAFT_VOTER, versions=(0, 0), flexible=0):
    """The controller whose address changes."""

    cluster_id: str | None = string(nullable=0)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[QuorumListener] = array(QuorumListener)
    k_raft_version_feature: KRaftVersionFeature = structure(KRaftVersionFeature)


class CurrentLeader(Structure):
    """The leading controller. The id is -1 if unknown."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    host: str = string()
    port: int = int32()


class UpdateRaftVoterResponse(Message, answers=UpdateRaftVoterRequest):
    """The result of the change."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = structure(CurrentLeader, tag=0)


class FeatureUpdateKey(Structure):
    """A feature and its new level. ``upgrade_type`` is 1 for an upgrade, 2 and 3 for safe and unsafe downgrades."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0)
    upgrade_type: int = int8(default=1, since=1)


class UpdateFeaturesRequest(Message, api=ApiKey.UPDATE_FEATURES, versions=(0, 2), flexible=0):
    """Changes of feature levels, applied all or none."""

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1)


class UpdatableFeatureResult(Structure):
    """The result of one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


class UpdateFeaturesResponse(Message, answers=UpdateFeaturesRequest):
    """The results. From version 2 on there is one error for all of them."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1)
