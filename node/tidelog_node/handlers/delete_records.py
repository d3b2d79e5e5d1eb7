"""DeleteRecords: advance the start of partitions here at once, then wait for the other replicas (KIP-107).

A follower reports its log start with each fetch and adopts its leader's from the answer. A request is answered when the
new start has reached every replica on a live node. The records stay deleted even if it times out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import UNKNOWN_OFFSET
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, error_message, leader_hint
from tidelog_node.partitions import Partition
from tidelog_quorum.metadata.description import INTERNAL_TOPICS


@dataclass(slots=True)
class _Waiting:
    """A partition whose records are deleted here and must be deleted on the other replicas."""

    result: pb.DeleteRecordsPartitionResult
    topic: str
    partition: Partition
    deleted: asyncio.Future[None]


async def delete_records(context: NodeContext, request: pb.DeleteRecordsRequest) -> pb.DeleteRecordsResponse:
    """Delete from each partition, and answer within ``timeout_ms``; errors are in the results."""
    response = pb.DeleteRecordsResponse()
    waiting: list[_Waiting] = []
    slices = TimeSlices()
    try:
        async for topic in slices.of(request.topics):
            results = response.topics.add(name=topic.name)
            async for item in slices.of(topic.partitions):
                result = results.partitions.add(index=item.index, low_watermark=UNKNOWN_OFFSET)
                try:
                    begun = _begin(context, topic.name, item, result)
                    if begun.deleted.done():
                        _finish(context, begun, request.timeout_ms)
                    else:
                        waiting.append(begun)
                except TidelogError as error:
                    _fail(context, result, topic.name, error)
        if pending := {each.deleted for each in waiting if not each.deleted.done()}:
            await asyncio.wait(pending, timeout=max(0, request.timeout_ms) / 1000)
    finally:
        for each in waiting:
            if not each.deleted.cancel():
                # Retrieve the exception, even if nobody waits for the answer any more.
                each.deleted.exception()
    async for each in slices.of(waiting):
        _finish(context, each, request.timeout_ms)
    return response


def _begin(
    context: NodeContext, topic: str, item: pb.DeleteRecordsPartition, result: pb.DeleteRecordsPartitionResult
) -> _Waiting:
    partition = context.partition(topic, item.index)
    if topic in INTERNAL_TOPICS:
        raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no records of the internal topic {topic} are deleted")
    return _Waiting(result, topic, partition, partition.delete_records(item.offset).as_future())


def _finish(context: NodeContext, waiting: _Waiting, timeout_ms: int) -> None:
    partition = waiting.partition
    try:
        if waiting.deleted.cancelled():
            text = f"{partition}: not every replica has deleted its records after {timeout_ms} ms"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text)
        waiting.deleted.result()
        waiting.result.low_watermark = partition.low_watermark()
    except TidelogError as error:
        _fail(context, waiting.result, waiting.topic, error)


def _fail(context: NodeContext, result: pb.DeleteRecordsPartitionResult, topic: str, error: TidelogError) -> None:
    result.error.CopyFrom(error_message(error))
    leader = leader_hint(context, error, topic, result.index)
    if leader is not None:
        result.current_leader.CopyFrom(leader)
