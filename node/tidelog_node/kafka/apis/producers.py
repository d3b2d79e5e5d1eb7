"""The APIs InitProducerId and DescribeProducers."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node import handlers
from tidelog_node.handlers.requests import producers as values
from tidelog_node.kafka.apis.errors import code_of
from tidelog_node.kafka.protocol.messages import producers as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi

_NONE: Final = -1
_KNOWS_FENCED: Final = 4
"""The first version of InitProducerId whose clients know PRODUCER_FENCED."""


async def init_producer_id(
    node: KafkaNode, request: wire.InitProducerIdRequest, caller: Caller
) -> wire.InitProducerIdResponse:
    """Return the producer of a transactional id, or a new producer id.

    Without a transactional id, even a producer that has an id gets a new one: its epoch is not raised (KIP-360).
    """
    asked = values.InitProducerIdRequest(
        request.transactional_id,
        request.transaction_timeout_ms,
        _number(request.producer_id),
        _number(request.producer_epoch),
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    try:
        given = await handlers.init_producer_id(node.context, asked)
    except TidelogError as error:
        is_unknown = error.code is ErrorCode.PRODUCER_FENCED and caller.version < _KNOWS_FENCED
        return wire.InitProducerIdResponse(
            error_code=(ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error.code).code
        )
    return wire.InitProducerIdResponse(
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        ongoing_txn_producer_id=_NONE if given.ongoing_txn_producer_id is None else given.ongoing_txn_producer_id,
        ongoing_txn_producer_epoch=(
            _NONE if given.ongoing_txn_producer_epoch is None else given.ongoing_txn_producer_epoch
        ),
    )


def _number(value: int) -> int | None:
    return None if value == _NONE else value


async def describe_producers(
    node: KafkaNode, request: wire.DescribeProducersRequest, caller: Caller
) -> wire.DescribeProducersResponse:
    """Describe the producers of each partition."""
    slices = TimeSlices()
    topics = [TopicPartitions(topic.name, tuple(topic.partition_indexes)) async for topic in slices.of(request.topics)]
    answer = await handlers.describe_producers(node.context, values.DescribeProducersRequest(tuple(topics)))
    return wire.DescribeProducersResponse(
        topics=[
            wire.TopicResponse(found.name, [_partition(r) async for r in slices.of(found.partitions)])
            async for found in slices.of(answer.topics)
        ]
    )


def _partition(result: values.DescribeProducersPartitionResult) -> wire.PartitionResponse:
    states = [
        wire.ProducerState(
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
    return wire.PartitionResponse(result.index, code_of(result.error), message, states)


APIS: tuple[Api, ...] = (
    MessageApi(wire.InitProducerIdRequest, init_producer_id),
    MessageApi(wire.DescribeProducersRequest, describe_producers),
)
