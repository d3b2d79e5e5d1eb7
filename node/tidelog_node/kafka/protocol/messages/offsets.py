"""Requests about a partition's offsets: ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.fields import Message, Structure, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Structure):
    """A timestamp to look up, or a negative number for a special position (KIP-79, KIP-734, KIP-405, KIP-1005)."""

    partition_index: int = int32()
    current_leader_epoch: int = int32(default=-1, since=4)
    timestamp: int = int64()


class ListOffsetsTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api=ApiKey.LIST_OFFSETS, versions=(1, 11), flexible=6):
    """A request for one offset per partition. ``timeout_ms`` is for remote storage, which does not exist here."""

    replica_id: int = int32(default=-1)
    isolation_level: int = int8(since=2)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32(since=10)


class ListOffsetsPartitionResponse(Structure):
    """The offset, -1 if there is none."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32(default=-1, since=4)


class ListOffsetsTopicResponse(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, answers=ListOffsetsRequest):
    """An offset per partition."""

    throttle_time_ms: int = int32(since=2)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


class OffsetForLeaderPartition(Structure):
    """The epoch whose end is requested."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Structure):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, api=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), flexible=4):
    """A request for the ends of leader epochs (KIP-320)."""

    replica_id: int = int32(default=-2, since=3)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Structure):
    """The largest epoch not above the requested one, and its exclusive end; both -1 if unknown."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Structure):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, answers=OffsetForLeaderEpochRequest):
    """An end per partition."""

    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)


class DeleteRecordsPartition(Structure):
    """A partition whose records below the offset are deleted. -1 stands for the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Message, api=ApiKey.DELETE_RECORDS, versions=(0, 2), flexible=2):
    """A request to delete records (KIP-107)."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Structure):
    """The smallest log start offset of all live replicas, -1 on error."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Structure):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Message, answers=DeleteRecordsRequest):
    """A result per partition."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
