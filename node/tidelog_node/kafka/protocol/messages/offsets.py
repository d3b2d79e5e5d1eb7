"""Requests about a partition's offsets: ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, int8, int16, int32, int64, string


@dataclass(slots=True)
class ListOffsetsPartition(Structure):
    """A timestamp to look up, or a negative number for a special position (KIP-79, KIP-734, KIP-405, KIP-1005)."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, since=4)
    timestamp: int = int64()


@dataclass(slots=True)
class ListOffsetsTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@dataclass(slots=True)
class ListOffsetsRequest(Message):
    """A request for one offset per partition. ``timeout_ms`` is for remote storage, which does not exist here."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_OFFSETS, (1, 11), 6

    replica_id: int = int32(default=-1)
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10)


@dataclass(slots=True)
class ListOffsetsPartitionResponse(Structure):
    """The offset, -1 if there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(default=-1, since=4)


@dataclass(slots=True)
class ListOffsetsTopicResponse(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@dataclass(slots=True)
class ListOffsetsResponse(Message):
    """An offset per partition."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.LIST_OFFSETS, (1, 11), 6

    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


@dataclass(slots=True)
class OffsetForLeaderPartition(Structure):
    """The epoch whose end is requested."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


@dataclass(slots=True)
class OffsetForLeaderTopic(Structure):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


@dataclass(slots=True)
class OffsetForLeaderEpochRequest(Message):
    """A request for the ends of leader epochs (KIP-320)."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4

    replica_id: int = int32(default=-2, since=3)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


@dataclass(slots=True)
class EpochEndOffset(Structure):
    """The largest epoch not above the requested one, and its exclusive end; both -1 if unknown."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@dataclass(slots=True)
class OffsetForLeaderTopicResult(Structure):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


@dataclass(slots=True)
class OffsetForLeaderEpochResponse(Message):
    """An end per partition."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), 4

    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


@dataclass(slots=True)
class DeleteRecordsPartition(Structure):
    """A partition whose records below the offset are deleted. -1 stands for the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@dataclass(slots=True)
class DeleteRecordsTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@dataclass(slots=True)
class DeleteRecordsRequest(Message):
    """A request to delete records (KIP-107)."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DELETE_RECORDS, (0, 2), 2

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@dataclass(slots=True)
class DeleteRecordsPartitionResult(Structure):
    """The smallest log start offset of all live replicas, -1 on error."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@dataclass(slots=True)
class DeleteRecordsTopicResult(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@dataclass(slots=True)
class DeleteRecordsResponse(Message):
    """A result per partition."""

    API_KEY, VERSIONS, FLEXIBLE = ApiKey.DELETE_RECORDS, (0, 2), 2

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
