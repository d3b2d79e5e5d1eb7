"""The APIs InitProducerId and DescribeProducers."""

from __future__ import annotations

from typing import Final

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
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
        given = await handlers.init_producer_id(node.context, pb.InitProducerIdRequest())
    except TidelogError as error:
        return InitProducerIdResponse(error_code=error.code.code)
    return InitProducerIdResponse(producer_id=given.producer_id, producer_epoch=given.producer_epoch)


async def describe_producers(
    node: KafkaNode, request: DescribeProducersRequest, caller: Caller
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    asked = pb.DescribeProducersRequest()
    slices = TimeSlices()
    async for topic in slices.of(request.topics):
        asked.topics.add(name=topic.name, partitions=topic.partition_indexes)
    answer = await handlers.describe_producers(node.context, asked)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(topic.name, [_partition(r) async for r in slices.of(topic.partitions)])
            async for topic in slices.of(answer.topics)
        ]
    )


def _partition(result: pb.DescribeProducersPartitionResult) -> PartitionResponse:
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
    message = result.error.message if result.HasField("error") else None
    return PartitionResponse(result.index, result.error.code, message, states)


APIS: tuple[Api, ...] = (
    MessageApi(InitProducerIdRequest, init_producer_id),
    MessageApi(DescribeProducersRequest, describe_producers),
)
