"""The rules of APIs about producers and transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidelog_foundation.authorization import Access
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.kafka.authorization.rule import (
    CLUSTER_DENIED,
    GROUP,
    GROUP_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TRANSACTIONAL_ID,
    TRANSACTIONAL_ID_DENIED,
    Asked,
    Rule,
    on_cluster,
)
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import producers, transactions

_OF_NODES: Final = 4
"""The first version of AddPartitionsToTxn that only nodes send (KIP-890)."""
_NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED.code


async def _init_producer_id(
    access: Access,
    request: producers.InitProducerIdRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[producers.InitProducerIdResponse]],
) -> producers.InitProducerIdResponse:
    """Without a transactional id, an idempotent write to the cluster or a write to any topic is enough (KIP-679)."""
    name, error = request.transactional_id, 0
    if name is None:
        if not access.on_cluster(AclOperation.IDEMPOTENT_WRITE, log=False) and not access.allows_any(
            AclOperation.WRITE, TOPIC
        ):
            error = CLUSTER_DENIED
    elif not access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, name) or (
        request.enable2_pc and not access.allows(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, name)
    ):
        error = TRANSACTIONAL_ID_DENIED
    return producers.InitProducerIdResponse(error_code=error) if error else await handle(request)


async def _add_partitions(
    access: Access,
    request: transactions.AddPartitionsToTxnRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[transactions.AddPartitionsToTxnResponse]],
) -> transactions.AddPartitionsToTxnResponse:
    """A topic that is denied refuses the transaction's other partitions with OPERATION_NOT_ATTEMPTED."""
    if asked.version >= _OF_NODES:
        if access.on_cluster(AclOperation.CLUSTER_ACTION):
            return await handle(request)
        return transactions.AddPartitionsToTxnResponse(error_code=CLUSTER_DENIED)
    topics = request.v3_and_below_topics
    if not access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return _not_added(topics, lambda _: TRANSACTIONAL_ID_DENIED)
    allowed = await access.allowed(AclOperation.WRITE, TOPIC, (topic.name for topic in topics))
    if all(topic.name in allowed for topic in topics):
        return await handle(request)
    return _not_added(topics, lambda name: _NOT_ATTEMPTED if name in allowed else TOPIC_DENIED)


def _not_added(
    topics: list[transactions.AddPartitionsToTxnTopic], error_of: Callable[[str], int]
) -> transactions.AddPartitionsToTxnResponse:
    results = [
        transactions.AddPartitionsToTxnTopicResult(
            topic.name,
            [transactions.AddPartitionsToTxnPartitionResult(index, error_of(topic.name)) for index in topic.partitions],
        )
        for topic in topics
    ]
    return transactions.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _add_offsets(
    access: Access,
    request: transactions.AddOffsetsToTxnRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[transactions.AddOffsetsToTxnResponse]],
) -> transactions.AddOffsetsToTxnResponse:
    if not access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return transactions.AddOffsetsToTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)
    if not access.allows(AclOperation.READ, GROUP, request.group_id):
        return transactions.AddOffsetsToTxnResponse(error_code=GROUP_DENIED)
    return await handle(request)


async def _end(
    access: Access,
    request: transactions.EndTxnRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[transactions.EndTxnResponse]],
) -> transactions.EndTxnResponse:
    if access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return await handle(request)
    return transactions.EndTxnResponse(error_code=TRANSACTIONAL_ID_DENIED)


async def _commit_offsets(
    access: Access,
    request: transactions.TxnOffsetCommitRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[transactions.TxnOffsetCommitResponse]],
) -> transactions.TxnOffsetCommitResponse:
    error = 0
    if not access.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        error = TRANSACTIONAL_ID_DENIED
    elif not access.allows(AclOperation.READ, GROUP, request.group_id):
        error = GROUP_DENIED
    if error:
        return transactions.TxnOffsetCommitResponse(topics=[_uncommitted(topic, error) for topic in request.topics])
    allowed = await access.allowed(AclOperation.READ, TOPIC, (topic.name for topic in request.topics))
    refused = [_uncommitted(topic, TOPIC_DENIED) for topic in request.topics if topic.name not in allowed]
    request.topics = [topic for topic in request.topics if topic.name in allowed]
    if refused and not request.topics:
        return transactions.TxnOffsetCommitResponse(topics=refused)
    response = await handle(request)
    response.topics += refused
    return response


def _uncommitted(
    topic: transactions.TxnOffsetCommitRequestTopic, error: int
) -> transactions.TxnOffsetCommitResponseTopic:
    partitions = [transactions.TxnOffsetCommitResponsePartition(p.partition_index, error) for p in topic.partitions]
    return transactions.TxnOffsetCommitResponseTopic(topic.name, partitions)


async def _describe(
    access: Access,
    request: transactions.DescribeTransactionsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[transactions.DescribeTransactionsResponse]],
) -> transactions.DescribeTransactionsResponse:
    """Topics that the caller may not describe are left out of transactions."""
    request.transactional_ids, refused = await access.split(
        AclOperation.DESCRIBE, TRANSACTIONAL_ID, request.transactional_ids
    )
    response = await handle(request)
    names = (topic.topic for state in response.transaction_states for topic in state.topics)
    shown = await access.allowed(AclOperation.DESCRIBE, TOPIC, names, log=False)
    for state in response.transaction_states:
        state.topics = [topic for topic in state.topics if topic.topic in shown]
    response.transaction_states += [
        transactions.TransactionStateDescription(error_code=TRANSACTIONAL_ID_DENIED, transactional_id=name)
        for name in refused
    ]
    return response


async def _list(
    access: Access,
    request: transactions.ListTransactionsRequest,
    asked: Asked,
    handle: Callable[[Any], Awaitable[transactions.ListTransactionsResponse]],
) -> transactions.ListTransactionsResponse:
    response = await handle(request)
    names = (state.transactional_id for state in response.transaction_states)
    shown = await access.allowed(AclOperation.DESCRIBE, TRANSACTIONAL_ID, names, log=False)
    response.transaction_states = [s for s in response.transaction_states if s.transactional_id in shown]
    return response


def _no_markers(request: transactions.WriteTxnMarkersRequest, _: int) -> transactions.WriteTxnMarkersResponse:
    results = [
        transactions.WritableTxnMarkerResult(
            marker.producer_id,
            [
                transactions.WritableTxnMarkerTopicResult(
                    topic.name,
                    [
                        transactions.WritableTxnMarkerPartitionResult(index, CLUSTER_DENIED)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        for marker in request.markers
    ]
    return transactions.WriteTxnMarkersResponse(results)


RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets,
    ApiKey.END_TXN: _end,
    ApiKey.TXN_OFFSET_COMMIT: _commit_offsets,
    ApiKey.WRITE_TXN_MARKERS: on_cluster(_no_markers, AclOperation.ALTER, AclOperation.CLUSTER_ACTION),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe,
    ApiKey.LIST_TRANSACTIONS: _list,
}
