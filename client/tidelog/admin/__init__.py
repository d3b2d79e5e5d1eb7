"""The admin client, with confluent-kafka's API."""

from tidelog.admin.admin_client import AdminClient
from tidelog.admin.configs import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from tidelog.admin.elections import ElectionType
from tidelog.admin.features import FeatureMetadata, FeatureUpdate, SupportedVersionRange, UpgradeType
from tidelog.admin.groups import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    GroupMember,
    GroupMetadata,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
    MemberToRemove,
    PartitionLag,
)
from tidelog.admin.log_dirs import LogDirDescription, ReplicaInfo, TopicPartitionReplica
from tidelog.admin.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.admin.offsets import IsolationLevel, ListOffsetsResultInfo, OffsetSpec
from tidelog.admin.partitions import NewPartitions
from tidelog.admin.quorum import QuorumAdmin
from tidelog.admin.quorum_calls import QuorumInfo, QuorumReplicaState, SnapshotInfo
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
    "AlterConfigOpType",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupDescription",
    "ConsumerGroupListing",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeletedRecords",
    "DescribeClusterResult",
    "ElectionType",
    "FeatureMetadata",
    "FeatureUpdate",
    "GroupMember",
    "GroupMetadata",
    "IsolationLevel",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "LogDirDescription",
    "MemberAssignment",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitionReassignment",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetSpec",
    "PartitionLag",
    "PartitionMetadata",
    "PartitionReassignment",
    "QuorumAdmin",
    "QuorumInfo",
    "QuorumReplicaState",
    "ReplicaInfo",
    "ResourceType",
    "SnapshotInfo",
    "SupportedVersionRange",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "UpgradeType",
]
