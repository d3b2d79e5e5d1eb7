"""ListOffsets: the first offset, the latest one, or the first at a timestamp (KIP-79, KIP-734).

The latest offset is the high watermark, or the last stable offset for read_committed; no result is at or after it.
There is no tiered storage, so the earliest local offset is the earliest, and offsets in tiered storage are not found
(KIP-405, KIP-1005, KIP-1023).
"""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_EPOCH, UNKNOWN_OFFSET
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.event_loop import DecodingThread
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests.offsets import (
    IsolationLevel,
    ListOffsetsPartition,
    ListOffsetsPartitionResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResult,
)
from tidelog_node.log import TimestampAndOffset
from tidelog_node.partitions import Partition
from tidelog_node.partitions.reads import epoch_at

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_NO_TIMESTAMP = -1


async def list_offsets(context: NodeContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return a result for every partition; errors are in the results."""
    is_read_committed = request.isolation_level == IsolationLevel.READ_COMMITTED
    topics: list[ListOffsetsTopicResult] = []
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results: list[ListOffsetsPartitionResult] = []
        async for item in slices.of(topic.partitions):
            try:
                results.append(await _result(context, topic.name, item, is_read_committed))
            except TidelogError as error:
                results.append(ListOffsetsPartitionResult(item.index, error.detached()))
        topics.append(ListOffsetsTopicResult(topic.name, tuple(results)))
    return ListOffsetsResponse(tuple(topics))


async def _result(
    context: NodeContext, topic: str, item: ListOffsetsPartition, is_read_committed: bool
) -> ListOffsetsPartitionResult:
    partition = context.partition(topic, item.index)
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
    return ListOffsetsPartitionResult(item.index, None, timestamp_ms, offset, leader_epoch)


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
