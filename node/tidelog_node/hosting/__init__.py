"""State of the replicas that a node hosts, without I/O: image changes in order, failed and full disks.

``step(event, now_ms) -> commands``; the shell is :mod:`tidelog_node.partitions.registry`.
"""

from tidelog_node.hosting.replicas import HostedReplicas
from tidelog_node.hosting.states import LastState, PartitionKey

__all__ = ["HostedReplicas", "LastState", "PartitionKey"]
