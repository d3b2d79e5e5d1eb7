"""The parts of a node that its cluster links use."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId
from tidelog_node.coordination import GroupCoordinator
from tidelog_node.event_loop import Clock
from tidelog_node.handlers.context import AdminController
from tidelog_node.handlers.node_calls import NodeCalls
from tidelog_node.partitions import MetadataCache, PartitionRegistry


@dataclass(frozen=True, slots=True)
class LinkNode:
    """The node's partitions, metadata and coordinator of groups, the leading controller, and the other nodes."""

    broker_id: BrokerId
    partitions: PartitionRegistry
    metadata: MetadataCache
    controller: AdminController
    groups: GroupCoordinator
    clock: Clock
    calls: NodeCalls
