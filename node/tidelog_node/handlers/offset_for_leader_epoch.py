"""OffsetForLeaderEpoch: the end of an epoch in the leader's log, for readers that check for truncation (KIP-320)."""

from __future__ import annotations

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import UNKNOWN_OFFSET
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, error_message, optional_epoch


async def offset_for_leader_epoch(
    context: NodeContext, request: pb.OffsetForLeaderEpochRequest
) -> pb.OffsetForLeaderEpochResponse:
    """Return a result for every partition; errors are in the results."""
    response = pb.OffsetForLeaderEpochResponse()
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = response.topics.add(name=topic.name)
        async for item in slices.of(topic.partitions):
            result = results.partitions.add(index=item.index, leader_epoch=-1, end_offset=UNKNOWN_OFFSET)
            try:
                partition = context.partition(topic.name, item.index)
                epoch, end_offset = partition.end_offset_for_epoch(item.leader_epoch, optional_epoch(item))
                result.leader_epoch, result.end_offset = epoch, end_offset
            except TidelogError as error:
                result.error.CopyFrom(error_message(error))
    return response
