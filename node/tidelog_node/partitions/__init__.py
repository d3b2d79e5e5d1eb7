"""The shell around logs and replication state: appends, fetchers, waiting requests and metadata changes."""

from tidelog_node.partitions.clock import Clock, SystemClock
from tidelog_node.partitions.decoding import INLINE_BYTES, MAX_INLINE_SIZE, DecodingThread
from tidelog_node.partitions.foundings import found_all
from tidelog_node.partitions.log_directories import LogDirectories
from tidelog_node.partitions.metadata_cache import MetadataCache
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.pending import Pending
from tidelog_node.partitions.reads import FollowerIdentity, ReadRequest, ReadResult
from tidelog_node.partitions.registry import PartitionRegistry
from tidelog_node.partitions.throttles import ReplicationThrottles

__all__ = [
    "INLINE_BYTES",
    "MAX_INLINE_SIZE",
    "Clock",
    "DecodingThread",
    "FollowerIdentity",
    "LogDirectories",
    "MetadataCache",
    "Partition",
    "PartitionRegistry",
    "Pending",
    "ReadRequest",
    "ReadResult",
    "ReplicationThrottles",
    "SystemClock",
    "found_all",
]
