"""The admin client, with confluent-kafka's API."""

from tidelog.admin.admin_client import AdminClient
from tidelog.admin.configs import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
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
from tidelog.admin.numbers import (
    CONFIG_SOURCE_DEFAULT_CONFIG,
    CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG,
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG,
    CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG,
    CONFIG_SOURCE_GROUP_CONFIG,
    CONFIG_SOURCE_STATIC_BROKER_CONFIG,
    CONFIG_SOURCE_UNKNOWN_CONFIG,
    RESOURCE_ANY,
    RESOURCE_BROKER,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    RESOURCE_TRANSACTIONAL_ID,
    RESOURCE_UNKNOWN,
)
from tidelog.admin.offsets import IsolationLevel, ListOffsetsResultInfo, OffsetSpec
from tidelog.admin.partitions import NewPartitions
from tidelog.admin.quorum import QuorumAdmin
from tidelog.admin.quorum_calls import QuorumInfo, QuorumReplicaState, SnapshotInfo
from tidelog.admin.reassignments import NewPartitionReassignment, PartitionReassignment
from tidelog.admin.records import DeletedRecords
from tidelog.admin.resources import (
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
)
from tidelog.admin.security import (
    AclBinding,
    AclBindingFilter,
    ScramCredentialInfo,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from tidelog.admin.topics import (
    DescribeClusterResult,
    NewTopic,
    Node,
    TopicCollection,
    TopicDescription,
    TopicPartitionInfo,
)
from tidelog.message import OFFSET_INVALID
from tidelog_foundation.errors import KafkaError, KafkaException

__all__ = [
    "CONFIG_SOURCE_DEFAULT_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER_CONFIG",
    "CONFIG_SOURCE_DYNAMIC_TOPIC_CONFIG",
    "CONFIG_SOURCE_GROUP_CONFIG",
    "CONFIG_SOURCE_STATIC_BROKER_CONFIG",
    "CONFIG_SOURCE_UNKNOWN_CONFIG",
    "OFFSET_INVALID",
    "RESOURCE_ANY",
    "RESOURCE_BROKER",
    "RESOURCE_GROUP",
    "RESOURCE_TOPIC",
    "RESOURCE_TRANSACTIONAL_ID",
    "RESOURCE_UNKNOWN",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPermissionType",
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
    "KafkaError",
    "KafkaException",
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
    "ResourcePatternType",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramMechanism",
    "SnapshotInfo",
    "SupportedVersionRange",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartitionInfo",
    "TopicPartitionReplica",
    "UpgradeType",
    "UserScramCredentialAlteration",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentialsDescription",
]
