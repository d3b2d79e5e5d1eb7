"""DeleteRecords: advance the start of partitions here at once, then wait for the other replicas (KIP-107).

A follower reports its log start with each fetch and adopts its leader's from the answer. A request is answered when the
new start has reached every replica on a live node. The records stay deleted even if it times out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, leader_hint
from tidelog_node.handlers.requests.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog_node.partitions import Partition
from tidelog_quorum.metadata.description import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A partition whose records are deleted here and must be deleted on the other replicas."""

    index: int
    partition: Partition
    deleted: asyncio.Future[None]


async def delete_records(context: NodeContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete from each partition, and answer within ``timeout_ms``; errors are in the results."""
    begun: list[tuple[str, list[_Waiting | DeleteRecordsPartitionResult]]] = []
    waiting: list[_Waiting] = []
    slices = TimeSlices()
    try:
        async for topic in slices.of(request.topics):
            begun.append((topic.name, []))
            async for item in slices.of(topic.partitions):
                each = _begin(context, topic.name, item, request.timeout_ms)
                begun[-1][1].append(each)
                if isinstance(each, _Waiting):
                    waiting.append(each)
        if waiting:
            timeout_s = max(0, request.timeout_ms) / 1000
            await asyncio.wait({each.deleted for each in waiting}, timeout=timeout_s)
    finally:
        for each in waiting:
            if not each.deleted.cancel():
                # Retrieve the exception, even if nobody waits for the answer any more.
                each.deleted.exception()
    topics: list[DeleteRecordsTopicResult] = []
    async for name, of_topic in slices.of(begun):
        results = [
            _result(context, name, each, request.timeout_ms) if isinstance(each, _Waiting) else each
            async for each in slices.of(of_topic)
        ]
        topics.append(DeleteRecordsTopicResult(name, tuple(results)))
    return DeleteRecordsResponse(tuple(topics))


def _begin(
    context: NodeContext, topic: str, item: DeleteRecordsPartition, timeout_ms: int
) -> _Waiting | DeleteRecordsPartitionResult:
    """Delete from one partition, and return its result unless other replicas must delete too."""
    try:
        partition = context.partition(topic, item.index)
        if topic in INTERNAL_TOPICS:
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no records of the internal topic {topic} are deleted")
        begun = _Waiting(item.index, partition, partition.delete_records(item.offset).as_future())
    except TidelogError as error:
        return _failure(context, topic, item.index, error)
    return _result(context, topic, begun, timeout_ms) if begun.deleted.done() else begun


def _result(context: NodeContext, topic: str, begun: _Waiting, timeout_ms: int) -> DeleteRecordsPartitionResult:
    partition = begun.partition
    try:
        if begun.deleted.cancelled():
            text = f"{partition}: not every replica has deleted its records after {timeout_ms} ms"
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, text)
        begun.deleted.result()
        return DeleteRecordsPartitionResult(begun.index, None, partition.low_watermark())
    except TidelogError as error:
        return _failure(context, topic, begun.index, error)


def _failure(context: NodeContext, topic: str, index: int, error: TidelogError) -> DeleteRecordsPartitionResult:
    leader = leader_hint(context, error, topic, index)
    return DeleteRecordsPartitionResult(index, error.detached(), current_leader=leader)
