"""A broker's reports about its replicas: changes of ISRs (KIP-497) and log directories (KIP-858)."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import (
    NO_BROKER,
    NO_EPOCH,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidelog_foundation.requests.request import Request

NO_PARTITION_EPOCH = PartitionEpoch(-1)


@dataclass(frozen=True, slots=True)
class IsrMember:
    """A member of an ISR. Its epoch is -1 if it is not to be checked (KIP-903)."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """The ISR that a leader proposes for a partition, and the epochs that it knows."""

    index: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    new_isr: tuple[IsrMember, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionTopic:
    """The proposals for partitions of a topic."""

    topic_id: TopicId
    partitions: tuple[AlterPartitionItem, ...]


@dataclass(frozen=True, slots=True)
class AlterPartitionItemResult:
    """A partition's new state, or the error of its change."""

    index: int
    error: TidelogError | None = None
    leader_id: BrokerId = NO_BROKER
    leader_epoch: LeaderEpoch = NO_EPOCH
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    isr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionTopicResult:
    """The outcomes for partitions of a topic."""

    topic_id: TopicId
    partitions: tuple[AlterPartitionItemResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse:
    """The outcome for each partition."""

    topics: tuple[AlterPartitionTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest(Request[AlterPartitionResponse]):
    """A request to change ISRs, as compare-and-set, on behalf of the leader."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    topics: tuple[AlterPartitionTopic, ...] = ()


@dataclass(frozen=True, slots=True)
class DirectoryAssignmentTopic:
    """Partitions of a topic in one log directory."""

    topic_id: TopicId
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DirectoryAssignment:
    """The replicas in one log directory; LOST_DIRECTORY for replicas without a usable one.

    ``keeps_logs`` is True if the logs are as before these replicas were reported as lost, because only the disk was
    full. Otherwise a lost replica that has a directory again counts as new and empty.
    """

    directory_id: DirectoryId
    topics: tuple[DirectoryAssignmentTopic, ...] = ()
    keeps_logs: bool = False


@dataclass(frozen=True, slots=True)
class DirectoryAssignmentResult:
    """The outcome for one replica."""

    index: int
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class DirectoryAssignmentTopicResult:
    """The outcomes for replicas of a topic."""

    topic_id: TopicId
    partitions: tuple[DirectoryAssignmentResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsResponse:
    """The outcome for each replica."""

    topics: tuple[DirectoryAssignmentTopicResult, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsRequest(Request[AssignReplicasToDirsResponse]):
    """A report of the log directories of replicas."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    directories: tuple[DirectoryAssignment, ...] = ()
