"""OffsetForLeaderEpoch: the end of an epoch in the leader's log, for readers that check for truncation (KIP-320)."""

from __future__ import annotations

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
)


async def offset_for_leader_epoch(
    context: NodeContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return a result for every partition; errors are in the results."""
    topics: list[OffsetForLeaderTopicResult] = []
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = [_result(context, topic.name, item) async for item in slices.of(topic.partitions)]
        topics.append(OffsetForLeaderTopicResult(topic.name, tuple(results)))
    return OffsetForLeaderEpochResponse(tuple(topics))


def _result(context: NodeContext, topic: str, item: OffsetForLeaderPartition) -> OffsetForLeaderPartitionResult:
    try:
        partition = context.partition(topic, item.index)
        epoch, end_offset = partition.end_offset_for_epoch(item.leader_epoch, item.current_leader_epoch)
    except TidelogError as error:
        return OffsetForLeaderPartitionResult(item.index, error.detached())
    return OffsetForLeaderPartitionResult(item.index, None, epoch, end_offset)
