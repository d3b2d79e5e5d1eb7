"""Produce over gRPC: the conversion of its outcomes to messages."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.handlers.context import NodeContext, error_message
from tidelog_node.handlers.produce import TopicOutcome, begin_produce


async def produce(context: NodeContext, request: pb.ProduceRequest) -> pb.ProduceResponse:
    """Append the batches and wait for the outcome."""
    pending = await begin_produce(context, request)
    if pending.is_complete:
        return produce_response(pending.outcomes)
    return await pending.completion(produce_response)


def produce_response(outcomes: Iterable[TopicOutcome]) -> pb.ProduceResponse:
    """Return the response for the outcomes of a request."""
    response = pb.ProduceResponse()
    for topic in outcomes:
        results = response.topics.add(name=topic.name)
        for outcome in topic.partitions:
            result = results.partitions.add(
                index=outcome.index, base_offset=outcome.base_offset, log_append_time_ms=outcome.log_append_time_ms
            )
            if outcome.error is None:
                result.log_start_offset = outcome.log_start_offset
                continue
            result.error.CopyFrom(error_message(outcome.error))
            if outcome.leader is not None:
                result.current_leader.CopyFrom(outcome.leader)
    return response
