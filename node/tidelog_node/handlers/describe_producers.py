"""DescribeProducers: the producers that write to partitions with a producer id, from any replica (KIP-664)."""

from __future__ import annotations

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext, error_message


async def describe_producers(
    context: NodeContext, request: pb.DescribeProducersRequest
) -> pb.DescribeProducersResponse:
    """Return a result for every partition; errors are in the results.

    Producers that were silent long enough are omitted.
    """
    response = pb.DescribeProducersResponse()
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = response.topics.add(name=topic.name)
        async for index in slices.of(topic.partitions):
            result = results.partitions.add(index=index)
            try:
                _describe(context, topic.name, result)
            except TidelogError as error:
                result.error.CopyFrom(error_message(error))
    return response


def _describe(context: NodeContext, topic: str, result: pb.DescribeProducersPartitionResult) -> None:
    for entry in context.partition(topic, result.index).log.active_producers():
        result.active_producers.add(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp_ms=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.current_txn_first_offset,
        )
