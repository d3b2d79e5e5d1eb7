"""The shell around logs and replication state: appends, fetchers, waiting requests and metadata changes."""

from tidelog_node.partitions.directories.folder_creation import create_folders
from tidelog_node.partitions.directories.log_manager import LogManager
from tidelog_node.partitions.metadata_cache import MetadataCache
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.reads import FollowerIdentity, ReadRequest, ReadResult
from tidelog_node.partitions.registry import PartitionRegistry
from tidelog_node.partitions.throttles import ReplicationThrottles
