"""The admin client, with confluent-kafka's API."""

from tidelog.admin.admin_client import AdminClient
from tidelog.admin.elections import ElectionType
from tidelog.admin.log_dirs import LogDirDescription, ReplicaInfo, TopicPartitionReplica
from tidelog.admin.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.admin.quorum import QuorumAdmin, QuorumInfo, QuorumReplicaState, SnapshotInfo
from tidelog.admin.reassignments import NewPartitionReassignment, PartitionReassignment
from tidelog.admin.records import DeletedRecords
from tidelog.admin.topics import (
    DescribeClusterResult,
    NewTopic,
    Node,
    TopicCollection,
    TopicDescription,
    TopicPartitionInfo,
)

__all__ = [
    "AdminClient",
    "BrokerMetadata",
    "ClusterMetadata",
    "DeletedRecords",
    "DescribeClusterResult",
    "ElectionType",
    "LogDirDescription",
    "NewPartitionReassignment",
    "NewTopic",
    "Node",
    "PartitionMetadata",
    "PartitionReassignment",
    "QuorumAdmin",
    "QuorumInfo",
    "QuorumReplicaState",
    "ReplicaInfo",
    "SnapshotInfo",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
]
