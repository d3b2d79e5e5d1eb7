"""Requests about offsets: ListOffsets, OffsetForLeaderEpoch and DeleteRecords. -1 stands for an unknown value."""

from __future__ import annotations

from enum import IntEnum

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import UNKNOWN_OFFSET, LeaderEpoch
from tidelog_node.fetching import CurrentLeader


class IsolationLevel(IntEnum):
    """The visibility of transactional records."""

    UNSPECIFIED = 0
    READ_UNCOMMITTED = 1
    READ_COMMITTED = 2


@dataclass(frozen=True, slots=True)
class ListOffsetsPartition:
    """A partition, and a timestamp or a special position. Without a leader epoch, any leader answers."""

    index: int
    timestamp_ms: int
    current_leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class ListOffsetsTopic:
    """The partitions of one topic. Without an id, any topic of this name answers."""

    name: str
    partitions: tuple[ListOffsetsPartition, ...]
    topic_id: bytes = b""


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest:
    """A request for offsets by timestamp."""

    topics: tuple[ListOffsetsTopic, ...]
    isolation_level: IsolationLevel = IsolationLevel.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class ListOffsetsPartitionResult:
    """The first offset with at least the timestamp, its record's timestamp, and its record's leader epoch."""

    index: int
    error: TidelogError | None = None
    timestamp_ms: int = -1
    offset: int = UNKNOWN_OFFSET
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsTopicResult:
    """The results for one topic, in the order of the request."""

    name: str
    partitions: tuple[ListOffsetsPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    """The offsets."""

    topics: tuple[ListOffsetsTopicResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetForLeaderPartition:
    """A partition and an epoch of its leaders. Without a current leader epoch, any leader answers."""

    index: int
    leader_epoch: LeaderEpoch
    current_leader_epoch: LeaderEpoch | None = None


@dataclass(frozen=True, slots=True)
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[OffsetForLeaderPartition, ...]


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochRequest:
    """A request for the ends of epochs."""

    topics: tuple[OffsetForLeaderTopic, ...]


@dataclass(frozen=True, slots=True)
class OffsetForLeaderPartitionResult:
    """The largest epoch of the log up to the requested one, and its end, which is exclusive."""

    index: int
    error: TidelogError | None = None
    leader_epoch: int = -1
    end_offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class OffsetForLeaderTopicResult:
    """The results for one topic, in the order of the request."""

    name: str
    partitions: tuple[OffsetForLeaderPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochResponse:
    """The ends of the epochs."""

    topics: tuple[OffsetForLeaderTopicResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsPartition:
    """A partition and its new first offset; -1 is the high watermark."""

    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str
    partitions: tuple[DeleteRecordsPartition, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsRequest:
    """A request to delete records. ``timeout_ms`` is the longest wait for the other replicas."""

    topics: tuple[DeleteRecordsTopic, ...]
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class DeleteRecordsPartitionResult:
    """The smallest first offset of all live replicas, or an error with the leader if this node does not lead."""

    index: int
    error: TidelogError | None = None
    low_watermark: int = UNKNOWN_OFFSET
    current_leader: CurrentLeader | None = None


@dataclass(frozen=True, slots=True)
class DeleteRecordsTopicResult:
    """The results for one topic, in the order of the request."""

    name: str
    partitions: tuple[DeleteRecordsPartitionResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteRecordsResponse:
    """The new first offsets."""

    topics: tuple[DeleteRecordsTopicResult, ...]
