"""A client's view of the cluster: metadata, leaders, and a connection per node."""

from tidelog.cluster.attempts import TopicPartitionKey
from tidelog.cluster.client import ClusterClient
from tidelog.cluster.connections import Connection
from tidelog.cluster.coordinator import Coordinators
from tidelog.cluster.lifetime import Lifetime
from tidelog.cluster.metadata import Broker, ClusterMetadata, Partition, Topic
from tidelog.cluster.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, OffsetAndTimestamp
