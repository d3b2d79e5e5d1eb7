"""Elections of leaders and reassignments of replicas, at an administrator's request."""

from __future__ import annotations

from enum import IntEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.request import Request


class ElectionType(IntEnum):
    """The leaders that an election may choose. UNSPECIFIED means PREFERRED.

    UNCLEAN elects any live replica if no eligible one is live, which may lose records.
    """

    UNSPECIFIED = 0
    PREFERRED = 1
    UNCLEAN = 2


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Some partitions of a topic."""

    name: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ElectLeadersPartitionResult:
    """The outcome for one partition."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class ElectLeadersTopicResult:
    """The outcomes for partitions of a topic."""

    name: str
    partitions: tuple[ElectLeadersPartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ElectLeadersResponse:
    """The outcome for each partition."""

    topics: tuple[ElectLeadersTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class ElectLeadersRequest(Request[ElectLeadersResponse]):
    """A request to elect leaders (KIP-183, KIP-460), for all partitions or for those of ``topics``."""

    election_type: ElectionType = ElectionType.UNSPECIFIED
    topics: tuple[TopicPartitions, ...] = ()
    all_partitions: bool = False
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReassignablePartition:
    """A partition's new replicas; None cancels the reassignment in progress."""

    index: int
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReassignableTopic:
    """Partitions of a topic to reassign."""

    name: str
    partitions: tuple[ReassignablePartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReassignablePartitionResult:
    """The outcome for one partition."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class ReassignableTopicResult:
    """The outcomes for partitions of a topic."""

    name: str
    partitions: tuple[ReassignablePartitionResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsResponse:
    """The outcome for each partition."""

    topics: tuple[ReassignableTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionReassignmentsRequest(Request[AlterPartitionReassignmentsResponse]):
    """A request to move partitions to other replicas, or to cancel that (KIP-455).

    ``refuse_replication_factor_change`` rejects another number of replicas (KIP-860).
    """

    topics: tuple[ReassignableTopic, ...] = ()
    timeout_ms: int = 0
    refuse_replication_factor_change: bool = False


@dataclass(frozen=True, slots=True)
class OngoingPartitionReassignment:
    """A reassignment in progress."""

    index: int
    replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class OngoingTopicReassignment:
    """The reassignments of a topic's partitions."""

    name: str
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsResponse:
    """The reassignments in progress."""

    topics: tuple[OngoingTopicReassignment, ...] = ()


@dataclass(frozen=True, slots=True)
class ListPartitionReassignmentsRequest(Request[ListPartitionReassignmentsResponse]):
    """A request for the reassignments in progress, of some partitions or, without ``topics``, of all."""

    topics: tuple[TopicPartitions, ...] = ()
