"""The admin client, with confluent-kafka's API."""

from tidelog.admin.admin_client import AdminClient
from tidelog.admin.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
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
    "DescribeClusterResult",
    "NewTopic",
    "Node",
    "PartitionMetadata",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartitionInfo",
]
