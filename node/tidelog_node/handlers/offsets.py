"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords.

ListOffsets finds the first offset, the latest one, or the first at a timestamp (KIP-79, KIP-734). The latest offset is
the high watermark, or the last stable offset for read_committed; no result is at or after it. There is no tiered
storage, so the earliest local offset is the earliest, and offsets in tiered storage are not found (KIP-405, KIP-1005,
KIP-1023).

OffsetForLeaderEpoch finds the end of an epoch in the leader's log, for readers that check for truncation (KIP-320).

DeleteRecords advances the start of partitions here at once, then waits for the other replicas (KIP-107). A follower
reports its log start with each fetch and adopts its leader's from the answer. A request is answered when the new start
has reached every replica on a live node. The records stay deleted even if it times out.
"""

from __future__ import annotations

import asyncio

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_EPOCH, UNKNOWN_OFFSET
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.event_loop import DecodingThread
from tidelog_node.handlers.context import NodeContext, check_topic_id, leader_hint
from tidelog_node.handlers.requests import offsets as requests
from tidelog_node.log import TimestampAndOffset
from tidelog_node.partitions import Partition
from tidelog_node.partitions.reads import epoch_at
from tidelog_quorum.metadata.description import INTERNAL_TOPICS

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_NO_TIMESTAMP = -1


async def list_offsets(context: NodeContext, request: requests.ListOffsetsRequest) -> requests.ListOffsetsResponse:
    """Return a result for every partition; errors are in the results."""
    is_read_committed = request.isolation_level == requests.IsolationLevel.READ_COMMITTED
    topics: list[requests.ListOffsetsTopicResult] = []
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results: list[requests.ListOffsetsPartitionResult] = []
        async for item in slices.of(topic.partitions):
            try:
                results.append(await _result(context, topic, item, is_read_committed))
            except TidelogError as error:
                results.append(requests.ListOffsetsPartitionResult(item.index, error.detached()))
        topics.append(requests.ListOffsetsTopicResult(topic.name, tuple(results)))
    return requests.ListOffsetsResponse(tuple(topics))


async def _result(
    context: NodeContext, topic: requests.ListOffsetsTopic, item: requests.ListOffsetsPartition, is_read_committed: bool
) -> requests.ListOffsetsPartitionResult:
    partition = context.partition(topic.name, item.index)
    check_topic_id(partition, topic.name, topic.topic_id)
    partition.state.check_leader_epoch(item.current_leader_epoch)
    leader = partition.state.require_leader()
    offset, timestamp_ms = UNKNOWN_OFFSET, _NO_TIMESTAMP
    if item.timestamp_ms == LATEST:
        offset = _end_offset(partition, leader.latest_offset(), is_read_committed)
    elif item.timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        offset = partition.log.log_start_offset
    elif item.timestamp_ms not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        end_offset = _end_offset(partition, leader.high_watermark, is_read_committed)
        found = await _find(context.decoding, partition, item.timestamp_ms, end_offset)
        if found is not None:
            offset, timestamp_ms = found.offset, found.timestamp_ms
    leader_epoch = NO_EPOCH if offset == UNKNOWN_OFFSET else epoch_at(partition.log, offset)
    return requests.ListOffsetsPartitionResult(item.index, None, timestamp_ms, offset, leader_epoch)


def _end_offset(partition: Partition, high_watermark: int, is_read_committed: bool) -> int:
    return partition.log.last_stable_offset(high_watermark) if is_read_committed else high_watermark


async def _find(
    decoding: DecodingThread, partition: Partition, timestamp_ms: int, end_offset: int
) -> TimestampAndOffset | None:
    if timestamp_ms < MAX_TIMESTAMP:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{timestamp_ms} is neither a time nor one of -1 to -6")
    if timestamp_ms == MAX_TIMESTAMP:
        found = await partition.find_max_timestamp(end_offset, decoding)
    else:
        found = await partition.find_by_timestamp(timestamp_ms, end_offset, decoding)
    # The leader may have changed while a large batch was decompressed.
    leader = partition.state.require_leader()
    if found is None:
        # An uncommitted record may be the result (KIP-207).
        leader.latest_offset()
    return found


async def offset_for_leader_epoch(
    context: NodeContext, request: requests.OffsetForLeaderEpochRequest
) -> requests.OffsetForLeaderEpochResponse:
    """Return a result for every partition; errors are in the results."""
    topics: list[requests.OffsetForLeaderTopicResult] = []
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = [_epoch_end(context, topic.name, item) async for item in slices.of(topic.partitions)]
        topics.append(requests.OffsetForLeaderTopicResult(topic.name, tuple(results)))
    return requests.OffsetForLeaderEpochResponse(tuple(topics))


def _epoch_end(
    context: NodeContext, topic: str, item: requests.OffsetForLeaderPartition
) -> requests.OffsetForLeaderPartitionResult:
    try:
        partition = context.partition(topic, item.index)
        epoch, end_offset = partition.end_offset_for_epoch(item.leader_epoch, item.current_leader_epoch)
    except TidelogError as error:
        return requests.OffsetForLeaderPartitionResult(item.index, error.detached())
    return requests.OffsetForLeaderPartitionResult(item.index, None, epoch, end_offset)


@dataclass(frozen=True, slots=True)
class _Deletion:
    """A partition whose records are deleted here and must be deleted on the other replicas."""

    index: int
    partition: Partition
    deleted: asyncio.Future[None]


async def delete_records(
    context: NodeContext, request: requests.DeleteRecordsRequest
) -> requests.DeleteRecordsResponse:
    """Delete from each partition, and answer within ``timeout_ms``; errors are in the results."""
    begun: list[tuple[str, list[_Deletion | requests.DeleteRecordsPartitionResult]]] = []
    waiting: list[_Deletion] = []
    slices = TimeSlices()
    try:
        async for topic in slices.of(request.topics):
            begun.append((topic.name, []))
            async for item in slices.of(topic.partitions):
                each = _begin_deletion(context, topic.name, item, request.timeout_ms)
                begun[-1][1].append(each)
                if isinstance(each, _Deletion):
                    waiting.append(each)
        if waiting:
            timeout_s = max(0, request.timeout_ms) / 1000
            await asyncio.wait({each.deleted for each in waiting}, timeout=timeout_s)
    finally:
        for each in waiting:
            if not each.deleted.cancel():
                # Retrieve the exception, even if nobody waits for the answer any more.
                each.deleted.exception()
    topics: list[requests.DeleteRecordsTopicResult] = []
    async for name, of_topic in slices.of(begun):
        results = [
            _deleted(context, name, each, request.timeout_ms) if isinstance(each, _Deletion) else each
            async for each in slices.of(of_topic)
        ]
        topics.append(requests.DeleteRecordsTopicResult(name, tuple(results)))
    return requests.DeleteRecordsResponse(tuple(topics))


def _begin_deletion(
    context: NodeContext, topic: str, item: requests.DeleteRecordsPartition, timeout_ms: int
) -> _Deletion | requests.DeleteRecordsPartitionResult:
    """Delete from one partition, and return its result unless other replicas must delete too."""
    try:
        partition = context.partition(topic, item.index)
        if topic in INTERNAL_TOPICS:
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no records of the internal topic {topic} are deleted")
        begun = _Deletion(item.index, partition, partition.delete_records(item.offset).as_future())
    except TidelogError as error:
        return _deletion_failure(context, topic, item.index, error)
    return _deleted(context, topic, begun, timeout_ms) if begun.deleted.done() else begun


def _deleted(
    context: NodeContext, topic: str, begun: _Deletion, timeout_ms: int
) -> requests.DeleteRecordsPartitionResult:
    partition = begun.partition
    try:
        if begun.deleted.cancelled():
            text = f"{partition}: not every replica has deleted its records after {timeout_ms} ms"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text)
        begun.deleted.result()
        return requests.DeleteRecordsPartitionResult(begun.index, None, partition.low_watermark())
    except TidelogError as error:
        return _deletion_failure(context, topic, begun.index, error)


def _deletion_failure(
    context: NodeContext, topic: str, index: int, error: TidelogError
) -> requests.DeleteRecordsPartitionResult:
    leader = leader_hint(context, error, topic, index)
    return requests.DeleteRecordsPartitionResult(index, error.detached(), current_leader=leader)
