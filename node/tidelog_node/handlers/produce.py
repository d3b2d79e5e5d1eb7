"""Produce: append to the partitions that this node leads, then wait as ``acks`` asks.

Two halves, so that a stream's requests are appended in the order they came while their answers overtake each other:
:func:`begin_produce` appends, :meth:`PendingProduce.response` waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext, error_message, leader_hint
from tidelog_node.log import AppendInfo
from tidelog_node.partitions import Partition, found_all
from tidelog_quorum.metadata.description import INTERNAL_TOPICS

_ACKS_ALL = frozenset[int]((pb.ACKS_UNSPECIFIED, pb.ACKS_ALL))
_KNOWN_ACKS = _ACKS_ALL | {pb.ACKS_NONE, pb.ACKS_LEADER}


@dataclass(slots=True)
class _Waiting:
    """A batch that is appended here and must reach the other replicas."""

    result: pb.ProducePartitionResult
    topic: str
    partition: Partition
    required_offset: int
    replicated: asyncio.Future[None]


class PendingProduce:
    """A request whose batches are appended; awaited once, on the loop that appended them."""

    def __init__(self, context: NodeContext, timeout_ms: int) -> None:
        self._context = context
        self._timeout_ms = timeout_ms
        self._response = pb.ProduceResponse()
        self._waiting: list[_Waiting] = []

    async def response(self) -> pb.ProduceResponse:
        """Return the response when every partition has its outcome, after ``timeout_ms`` at the latest."""
        if self._waiting:
            futures = [w.replicated for w in self._waiting]
            try:
                if not all(f.done() for f in futures):
                    await asyncio.wait(futures, timeout=max(0, self._timeout_ms) / 1000)
            finally:
                for waiting in self._waiting:
                    self._finish(waiting)
        return self._response

    def abandon(self) -> None:
        """Wait for nothing any more; what was appended stays. Does nothing after :meth:`response`."""
        for waiting in self._waiting:
            if not waiting.replicated.cancel() and not waiting.replicated.cancelled():
                # A future complains when nobody asks why it failed.
                waiting.replicated.exception()

    def append(self, request: pb.ProduceRequest) -> None:
        """Append all batches of the request, each to its partition; errors go into the response."""
        for topic in request.topics:
            results = self._response.topics.add(name=topic.name)
            for item in topic.partitions:
                result = results.partitions.add(index=item.index, base_offset=-1, log_append_time_ms=-1)
                try:
                    self._append_one(request.acks, topic.name, item, result)
                except TidelogError as error:
                    self._fail(result, topic.name, error)

    def _append_one(self, acks: int, topic: str, item: pb.ProducePartition, result: pb.ProducePartitionResult) -> None:
        if acks not in _KNOWN_ACKS:
            raise error_for(ErrorCode.INVALID_REQUIRED_ACKS, f"acks has the unknown value {acks}")
        if topic in INTERNAL_TOPICS:
            # As Kafka's ReplicaManager: only coordinators write to them.
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no client writes to the internal topic {topic}")
        partition = self._context.partition(topic, item.index)
        info = partition.append(item.records, needs_all_replicas=acks in _ACKS_ALL)
        _fill(result, partition, info)
        if acks in _ACKS_ALL:
            required = info.last_offset + 1
            self._waiting.append(_Waiting(result, topic, partition, required, partition.replicated(required)))

    def _finish(self, waiting: _Waiting) -> None:
        future = waiting.replicated
        if not future.done():
            future.cancel()
            error: BaseException | None = waiting.partition.timed_out(waiting.required_offset, self._timeout_ms)
        else:
            error = future.exception()
        if isinstance(error, TidelogError):
            waiting.result.base_offset = waiting.result.log_append_time_ms = -1
            self._fail(waiting.result, waiting.topic, error)

    def _fail(self, result: pb.ProducePartitionResult, topic: str, error: TidelogError) -> None:
        result.error.CopyFrom(error_message(error))
        leader = leader_hint(self._context, error, topic, result.index)
        if leader is not None:
            result.current_leader.CopyFrom(leader)


async def begin_produce(context: NodeContext, request: pb.ProduceRequest) -> PendingProduce:
    """Append the request's batches, on the calling loop, and return what is to be awaited.

    There is no pause unless a partition is so new that it has no folder.
    """
    await found_all(_held(context, request))
    pending = PendingProduce(context, request.timeout_ms)
    pending.append(request)
    return pending


def refuse_produce(request: pb.ProduceRequest, error: TidelogError) -> pb.ProduceResponse:
    """Return the answer to a request of which nothing is appended, for the same reason everywhere."""
    response = pb.ProduceResponse()
    for topic in request.topics:
        results = response.topics.add(name=topic.name)
        for item in topic.partitions:
            results.partitions.add(index=item.index, error=error_message(error), base_offset=-1, log_append_time_ms=-1)
    return response


async def produce(context: NodeContext, request: pb.ProduceRequest) -> pb.ProduceResponse:
    """Append and wait for the outcome."""
    pending = await begin_produce(context, request)
    return await pending.response()


def _held(context: NodeContext, request: pb.ProduceRequest) -> Iterator[Partition]:
    for topic in request.topics:
        for item in topic.partitions:
            partition = context.partitions.get(topic.name, item.index)
            if partition is not None:
                yield partition


def _fill(result: pb.ProducePartitionResult, partition: Partition, info: AppendInfo) -> None:
    result.base_offset = info.first_offset
    result.log_append_time_ms = info.log_append_time_ms
    result.log_start_offset = partition.log.log_start_offset
