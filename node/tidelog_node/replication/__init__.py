"""Leader and follower state of a partition without I/O: ISR, high watermark, truncation."""

from tidelog_node.replication.fetch_session import FetchSession, FetchSessionCache, FetchSpec
from tidelog_node.replication.leader import LeaderState
from tidelog_node.replication.progress import FetchLease
from tidelog_node.replication.replica_selector import ReplicaSelector, ReplicaView
from tidelog_node.replication.state import PartitionState
from tidelog_node.replication.truncation import EpochEnd, find_divergence, truncation_offset
