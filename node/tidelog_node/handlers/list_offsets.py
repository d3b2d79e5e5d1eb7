"""ListOffsets: the first offset, the latest committed one, or the first at a timestamp (KIP-79, KIP-734)."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import UNKNOWN_OFFSET
from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext, error_message, optional_epoch
from tidelog_node.log import TimestampAndOffset
from tidelog_node.partitions import Partition
from tidelog_node.replication import LeaderState

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


async def list_offsets(context: NodeContext, request: pb.ListOffsetsRequest) -> pb.ListOffsetsResponse:
    """Answer for every partition; errors are inside."""
    response = pb.ListOffsetsResponse()
    for topic in request.topics:
        results = response.topics.add(name=topic.name)
        for item in topic.partitions:
            result = results.partitions.add(index=item.index, timestamp_ms=-1, offset=UNKNOWN_OFFSET, leader_epoch=-1)
            try:
                _answer(context.partition(topic.name, item.index), item, result)
            except TidelogError as error:
                result.error.CopyFrom(error_message(error))
    return response


def _answer(partition: Partition, item: pb.ListOffsetsPartition, result: pb.ListOffsetsPartitionResult) -> None:
    partition.state.check_leader_epoch(optional_epoch(item))
    leader = partition.state.require_leader()
    result.leader_epoch = leader.leader_epoch
    if item.timestamp_ms == LATEST:
        result.offset = leader.latest_offset()
    elif item.timestamp_ms == EARLIEST:
        result.offset = partition.log.log_start_offset
    else:
        found = _find(partition, leader, item.timestamp_ms)
        if found is not None:
            result.offset, result.timestamp_ms = found.offset, found.timestamp_ms


def _find(partition: Partition, leader: LeaderState, timestamp_ms: int) -> TimestampAndOffset | None:
    if timestamp_ms < MAX_TIMESTAMP:
        raise error_for(ErrorCode.INVALID_REQUEST, f"{timestamp_ms} is neither a time nor one of -1, -2, -3")
    found = (
        partition.log.find_max_timestamp() if timestamp_ms == MAX_TIMESTAMP else partition.find_committed(timestamp_ms)
    )
    if found is not None and found.offset < leader.high_watermark:
        return found
    # What is not committed yet may be what was asked for (KIP-207).
    leader.latest_offset()
    return None
