"""The APIs ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.handlers.requests import offsets as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import offsets as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_ISOLATION_LEVELS: Final = (
    values.IsolationLevel.READ_UNCOMMITTED,
    values.IsolationLevel.READ_COMMITTED,
)
_PLACES_SINCE: Final = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version in which each negative timestamp is a special position
(ReplicaManager.timestampMinSupportedVersion).
"""
_OFFSET_NOT_AVAILABLE_SINCE: Final = 5
_NOT_CHECKED: Final = -1


async def list_offsets(node: KafkaNode, request: wire.ListOffsetsRequest, caller: Caller) -> wire.ListOffsetsResponse:
    """Return an offset per valid partition, and an error for each other one (ReplicaManager.fetchOffset)."""
    level = request.isolation_level
    slices = TimeSlices()
    names = Counter(
        [
            (topic.name, item.partition_index)
            async for topic in slices.of(request.topics)
            async for item in slices.of(topic.partitions)
        ]
    )
    topics: list[values.ListOffsetsTopic] = []
    response = wire.ListOffsetsResponse()
    async for topic in slices.of(request.topics):
        results = wire.ListOffsetsTopicResponse(topic.name)
        response.topics.append(results)
        accepted: list[values.ListOffsetsPartition] = []
        async for item in slices.of(topic.partitions):
            code = _refusal(item, caller.version, names[topic.name, item.partition_index], level)
            if code is None:
                epoch = _checked(item.current_leader_epoch)
                accepted.append(values.ListOffsetsPartition(item.partition_index, item.timestamp, epoch))
            else:
                results.partitions.append(wire.ListOffsetsPartitionResponse(item.partition_index, code.code))
        topics.append(values.ListOffsetsTopic(topic.name, tuple(accepted)))
    asked = values.ListOffsetsRequest(tuple(topics), _ISOLATION_LEVELS[level == 1])
    answer = await handlers.list_offsets(node.context, asked)
    async for results, found in slices.of(zip(response.topics, answer.topics, strict=True)):
        results.partitions += [_found(each, caller.version) async for each in slices.of(found.partitions)]
    return response


async def offset_for_leader_epoch(
    node: KafkaNode, request: wire.OffsetForLeaderEpochRequest, caller: Caller
) -> wire.OffsetForLeaderEpochResponse:
    """Return the end of the requested epoch for each partition."""
    slices = TimeSlices()
    topics: list[values.OffsetForLeaderTopic] = []
    async for topic in slices.of(request.topics):
        items = [
            values.OffsetForLeaderPartition(
                item.partition, LeaderEpoch(item.leader_epoch), _checked(item.current_leader_epoch)
            )
            async for item in slices.of(topic.partitions)
        ]
        topics.append(values.OffsetForLeaderTopic(topic.topic, tuple(items)))
    answer = await handlers.offset_for_leader_epoch(node.context, values.OffsetForLeaderEpochRequest(tuple(topics)))
    return wire.OffsetForLeaderEpochResponse(
        topics=[
            wire.OffsetForLeaderTopicResult(
                found.name,
                [
                    wire.EpochEndOffset(code_of(r.error), r.index, r.leader_epoch, r.end_offset)
                    async for r in slices.of(found.partitions)
                ],
            )
            async for found in slices.of(answer.topics)
        ]
    )


async def delete_records(
    node: KafkaNode, request: wire.DeleteRecordsRequest, caller: Caller
) -> wire.DeleteRecordsResponse:
    """Delete from each partition once. If a partition is repeated, its last offset counts, as in KafkaApis."""
    slices = TimeSlices()
    offsets: dict[str, dict[int, int]] = {}
    async for topic in slices.of(request.topics):
        async for item in slices.of(topic.partitions):
            offsets.setdefault(topic.name, {})[item.partition_index] = item.offset
    topics: list[values.DeleteRecordsTopic] = []
    async for name, of_topic in slices.of(offsets.items()):
        items = [values.DeleteRecordsPartition(*each) async for each in slices.of(of_topic.items())]
        topics.append(values.DeleteRecordsTopic(name, tuple(items)))
    asked = values.DeleteRecordsRequest(tuple(topics), request.timeout_ms)
    answer = await handlers.delete_records(node.context, asked)
    return wire.DeleteRecordsResponse(
        topics=[
            wire.DeleteRecordsTopicResult(
                found.name,
                [
                    wire.DeleteRecordsPartitionResult(r.index, r.low_watermark, code_of(r.error))
                    async for r in slices.of(found.partitions)
                ],
            )
            async for found in slices.of(answer.topics)
        ]
    )


def _refusal(item: wire.ListOffsetsPartition, version: int, times_named: int, isolation_level: int) -> ErrorCode | None:
    if times_named > 1 or isolation_level not in (0, 1):
        return ErrorCode.INVALID_REQUEST
    if item.timestamp < 0 and version < _PLACES_SINCE.get(item.timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION
    return None


def _checked(leader_epoch: int) -> LeaderEpoch | None:
    return None if leader_epoch == _NOT_CHECKED else LeaderEpoch(leader_epoch)


def _found(result: values.ListOffsetsPartitionResult, version: int) -> wire.ListOffsetsPartitionResponse:
    code = code_of(result.error)
    if code == ErrorCode.OFFSET_NOT_AVAILABLE.code and version < _OFFSET_NOT_AVAILABLE_SINCE:
        code = ErrorCode.LEADER_NOT_AVAILABLE.code
    return wire.ListOffsetsPartitionResponse(
        result.index, code, result.timestamp_ms, result.offset, result.leader_epoch
    )


APIS: tuple[Api, ...] = (
    MessageApi(wire.ListOffsetsRequest, list_offsets),
    MessageApi(wire.OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    MessageApi(wire.DeleteRecordsRequest, delete_records),
)
