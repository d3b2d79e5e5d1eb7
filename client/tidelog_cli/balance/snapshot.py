"""A cluster at one time as the planner sees it: nodes with racks and disks, partitions with replicas and load. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.message import TopicPartition


class NodeState(enum.Enum):
    """A node's role in a plan."""

    AVAILABLE = "available"
    """It keeps its replicas and can get more."""
    FENCED = "not running"
    """It keeps its replicas, because it may return, and gets no more."""
    CORDONED = "cordoned"
    """It keeps its replicas and gets no more (KIP-1066)."""
    DRAINING = "draining"
    """It loses all replicas."""
    UNREGISTERED = "unregistered"
    """It will not return: it loses all replicas."""

    @property
    def is_leaving(self) -> bool:
        """Whether the node is to end without replicas."""
        return self in (NodeState.DRAINING, NodeState.UNREGISTERED)


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``capacity_bytes`` is the space that its replicas use and could use; None if it is unknown."""

    id: int
    rack: str | None = None
    state: NodeState = NodeState.AVAILABLE
    capacity_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its replicas, of which the first is the preferred leader, and its load.

    ``replicas`` are the target replicas while a reassignment is in progress. ``leader`` is -1 if there is none.
    ``bytes_in`` is what producers write in a second, ``bytes_out`` what consumers read.
    """

    replicas: tuple[int, ...]
    leader: int = -1
    size_bytes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def leader_bytes_out(self) -> int:
        """The bytes per second that the leader sends, to consumers and to followers."""
        return self.bytes_out + self.bytes_in * (len(self.replicas) - 1)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Nodes by id, and partitions. Every replica's node is among the nodes."""

    nodes: Mapping[int, Node]
    partitions: Mapping[TopicPartition, Partition] = field(default_factory=dict)
