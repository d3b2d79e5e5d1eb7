"""InitProducerId (KIP-98), and DescribeProducers (KIP-664), which any replica of a partition answers."""

from __future__ import annotations

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests import producers as requests
from tidelog_node.handlers.transactions import init_transactional_producer

_FIRST_EPOCH = 0


async def init_producer_id(
    context: NodeContext, request: requests.InitProducerIdRequest
) -> requests.InitProducerIdResponse:
    """Return a unique id for an idempotent producer, or the producer of a transactional id.

    Raises:
        TidelogError: COORDINATOR_LOAD_IN_PROGRESS: this node has received no ids from the controllers yet;
            INVALID_REQUEST: only one of the client's producer id and epoch is given; the errors of the coordinator of
            transactions.
    """
    if (request.producer_id is None) != (request.producer_epoch is None):
        text = f"producer id {request.producer_id} and epoch {request.producer_epoch}: give both or neither"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if request.transactional_id is not None:
        return await init_transactional_producer(context, request.transactional_id, request)
    return requests.InitProducerIdResponse(
        producer_id=await context.producer_ids.next_id(), producer_epoch=_FIRST_EPOCH
    )


async def describe_producers(
    context: NodeContext, request: requests.DescribeProducersRequest
) -> requests.DescribeProducersResponse:
    """Return a result for every partition; errors are in the results.

    Producers that were silent long enough are omitted.
    """
    topics: list[requests.DescribeProducersTopicResult] = []
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        results = [_result(context, topic.name, index) async for index in slices.of(topic.partitions)]
        topics.append(requests.DescribeProducersTopicResult(topic.name, tuple(results)))
    return requests.DescribeProducersResponse(tuple(topics))


def _result(context: NodeContext, topic: str, index: int) -> requests.DescribeProducersPartitionResult:
    try:
        entries = context.partition(topic, index).log.active_producers()
    except TidelogError as error:
        return requests.DescribeProducersPartitionResult(index, error.detached())
    producers = [
        requests.ActiveProducer(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_timestamp_ms=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    return requests.DescribeProducersPartitionResult(index, None, tuple(producers))
