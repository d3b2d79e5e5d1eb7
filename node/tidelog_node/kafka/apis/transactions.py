"""The APIs of transactional producers, and of administrators of transactions (KIP-98, KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.handlers import transactions
from tidelog_node.handlers.requests import transactions as values
from tidelog_node.kafka.apis.errors import close_if_late, code_of
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.served import Api, Caller, KafkaNode, MessageApi
from tidelog_node.shards.connections import UNORDERED

_BATCHED: Final = 4
"""The first version of AddPartitionsToTxn for several transactions, which nodes send."""
_KNOWS_FENCED: Final = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn whose clients know PRODUCER_FENCED."""
_RAISES_EPOCH: Final = 5
"""The first version of EndTxn whose clients use transaction version 2."""
_EPOCH_VERSION: Final = 2


async def add_partitions_to_txn(
    node: KafkaNode, request: wire.AddPartitionsToTxnRequest, caller: Caller
) -> wire.AddPartitionsToTxnResponse:
    """Add partitions to transactions, or verify that they have them."""
    if caller.version >= _BATCHED:
        asked = [await _transaction(each) async for each in TimeSlices().of(request.transactions)]
        answer = await transactions.add_partitions_to_txn(node.context, values.AddPartitionsToTxnRequest(tuple(asked)))
        results = [
            wire.AddPartitionsToTxnResult(result.transactional_id, await _added(each, result, caller))
            async for each, result in TimeSlices().of(zip(asked, answer.transactions, strict=True))
        ]
        return wire.AddPartitionsToTxnResponse(results_by_transaction=results)
    only = values.AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=await _topics(request.v3_and_below_topics),
        connection_us=caller.connection_us,
    )
    answer = await transactions.add_partitions_to_txn(node.context, values.AddPartitionsToTxnRequest((only,)))
    (result,) = answer.transactions
    close_if_late(result.error)
    return wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _added(only, result, caller))


async def _transaction(each: wire.AddPartitionsToTxnTransaction) -> values.AddPartitionsToTxnTransaction:
    return values.AddPartitionsToTxnTransaction(
        each.transactional_id,
        each.producer_id,
        each.producer_epoch,
        each.verify_only,
        await _topics(each.topics),
        _EPOCH_VERSION,
    )


async def _topics(topics: Sequence[wire.AddPartitionsToTxnTopic]) -> tuple[TopicPartitions, ...]:
    return tuple([TopicPartitions(topic.name, tuple(topic.partitions)) async for topic in TimeSlices().of(topics)])


async def _added(
    asked: values.AddPartitionsToTxnTransaction, result: values.AddPartitionsToTxnResult, caller: Caller
) -> list[wire.AddPartitionsToTxnTopicResult]:
    """Return the results by topic. An error of the transaction becomes the error of each partition."""
    slices = TimeSlices()
    if result.error is not None:
        code = _producer_code(result.error, caller)
        return [_topic_result(t.name, [(index, code) for index in t.partitions]) async for t in slices.of(asked.topics)]
    return [
        _topic_result(topic.name, [(p.index, code_of(p.error)) async for p in slices.of(topic.partitions)])
        async for topic in slices.of(result.topics)
    ]


def _topic_result(name: str, codes: Sequence[tuple[int, int]]) -> wire.AddPartitionsToTxnTopicResult:
    return wire.AddPartitionsToTxnTopicResult(name, [wire.AddPartitionsToTxnPartitionResult(*each) for each in codes])


async def add_offsets_to_txn(
    node: KafkaNode, request: wire.AddOffsetsToTxnRequest, caller: Caller
) -> wire.AddOffsetsToTxnResponse:
    """Add a group's offsets to a transaction."""
    asked = values.AddOffsetsToTxnRequest(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, caller.connection_us
    )
    answer = await transactions.add_offsets_to_txn(node.context, asked)
    close_if_late(answer.error)
    return wire.AddOffsetsToTxnResponse(error_code=_producer_code(answer.error, caller))


async def end_txn(node: KafkaNode, request: wire.EndTxnRequest, caller: Caller) -> wire.EndTxnResponse:
    """Commit or abort a transaction."""
    raises_epoch = caller.version >= _RAISES_EPOCH
    asked = values.EndTxnRequest(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        _EPOCH_VERSION if raises_epoch else 0,
        # The epoch tells which transaction the request ends.
        UNORDERED if raises_epoch else caller.connection_us,
    )
    answer = await transactions.end_txn(node.context, asked)
    close_if_late(answer.error)
    return wire.EndTxnResponse(
        error_code=_producer_code(answer.error, caller),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


async def describe_transactions(
    node: KafkaNode, request: wire.DescribeTransactionsRequest, caller: Caller
) -> wire.DescribeTransactionsResponse:
    """Describe the states of transactional ids."""
    asked = values.DescribeTransactionsRequest(tuple(request.transactional_ids))
    answer = await transactions.describe_transactions(node.context, asked)
    return wire.DescribeTransactionsResponse(
        transaction_states=[_described(found) async for found in TimeSlices().of(answer.transactions)]
    )


def _described(found: values.TransactionDescription) -> wire.TransactionStateDescription:
    if found.error is not None:
        return wire.TransactionStateDescription(code_of(found.error), found.transactional_id, "", 0, 0, 0, 0, [])
    return wire.TransactionStateDescription(
        0,
        found.transactional_id,
        found.transaction_state,
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        found.producer_id,
        found.producer_epoch,
        [wire.TransactionTopic(topic.name, list(topic.partitions)) for topic in found.topics],
    )


async def list_transactions(
    node: KafkaNode, request: wire.ListTransactionsRequest, caller: Caller
) -> wire.ListTransactionsResponse:
    """List the transactional ids that this node coordinates."""
    asked = values.ListTransactionsRequest(
        tuple(request.state_filters),
        tuple(request.producer_id_filters),
        request.duration_filter if request.duration_filter >= 0 else None,
        request.transactional_id_pattern or "",
    )
    answer = await transactions.list_transactions(node.context, asked)
    return wire.ListTransactionsResponse(
        error_code=code_of(answer.error),
        unknown_state_filters=list(answer.unknown_state_filters),
        transaction_states=[
            wire.TransactionListingState(line.transactional_id, line.producer_id, line.transaction_state)
            async for line in TimeSlices().of(answer.transactions)
        ],
    )


def _producer_code(error: TidelogError | None, caller: Caller) -> int:
    """Return the code of an error; older clients know a fenced producer by its epoch alone (KIP-588)."""
    is_fenced = error is not None and error.code is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH.code if is_fenced and caller.version < _KNOWS_FENCED else code_of(error)


APIS: tuple[Api, ...] = (
    MessageApi(wire.AddPartitionsToTxnRequest, add_partitions_to_txn),
    MessageApi(wire.AddOffsetsToTxnRequest, add_offsets_to_txn),
    MessageApi(wire.EndTxnRequest, end_txn),
    MessageApi(wire.DescribeTransactionsRequest, describe_transactions),
    MessageApi(wire.ListTransactionsRequest, list_transactions),
)
