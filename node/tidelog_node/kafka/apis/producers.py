"""The APIs InitProducerId and DescribeProducers."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.handlers.requests import producers as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_NONE: Final = -1


async def init_producer_id(node: KafkaNode, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
    """Return a new producer id, even for a producer that has one: without transactions its epoch is not raised
    (KIP-360).

    There are no transactions. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as in
    FindCoordinator. Every client stops at once after that code, whereas some retry forever after others, including
    UNSUPPORTED_VERSION.
    """
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE) or request.transactional_id == "":
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST.code)
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code)
    try:
        given = await handlers.init_producer_id(node.context, values.InitProducerIdRequest())
    except TidelogError as error:
        return InitProducerIdResponse(error_code=error.code.code)
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)


async def describe_producers(
    node: KafkaNode, request: DescribeProducersRequest, caller: Caller
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    slices = TimeSlices()
    topics = [TopicPartitions(topic.name, tuple(topic.partition_indexes)) async for topic in slices.of(request.topics)]
    answer = await handlers.describe_producers(node.context, values.DescribeProducersRequest(tuple(topics)))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(found.name, [_partition(r) async for r in slices.of(found.partitions)])
            async for found in slices.of(answer.topics)
        ]
    )


def _partition(result: values.DescribeProducersPartitionResult) -> PartitionResponse:
    states = [
        ProducerState(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp_ms,
            state.coordinator_epoch,
            state.current_txn_start_offset,
        )
        for state in result.active_producers
    ]
    message = None if result.error is None else result.error.message
    return PartitionResponse(result.index, code_of(result.error), message, states)


APIS: tuple[Api, ...] = (
    MessageApi(InitProducerIdRequest, init_producer_id),
    MessageApi(DescribeProducersRequest, describe_producers),
)
