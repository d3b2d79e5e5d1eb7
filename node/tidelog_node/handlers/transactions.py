"""The requests of transactional producers and of administrators that the transaction coordinator answers (KIP-98).

Each request goes to the shards of its transactional ids, if this node leads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import Final, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import OFFSETS_TOPIC, TransactionCoordinator
from tidelog_node.coordination.internal_topics import partition_for
from tidelog_node.handlers.context import NodeContext
from tidelog_node.handlers.requests.producers import InitProducerIdRequest, InitProducerIdResponse
from tidelog_node.handlers.requests.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionListing,
)
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.transactions import requests as core
from tidelog_node.transactions.states import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)

Q = TypeVar("Q")
R = TypeVar("R")
C = TypeVar("C", bound=core.TransactionResponse)

MOST_STATES: Final = 100
"""The number of states in one ListTransactions request. There are fewer than ten."""
_AT_ONCE = 100
"""The number of transactional ids of one request that are in progress at once."""
_ANY_CLIENT = ClientIdentity("", "")
"""Transactions do not depend on the client's name and address."""
_STATES = {state.label: state for state in TransactionState}


def coordinator_of(context: NodeContext) -> TransactionCoordinator:
    """Return the node's coordinator.

    Raises:
        TidelogError: COORDINATOR_NOT_AVAILABLE: this node has none.
    """
    if context.transactions is None:
        text = f"node {context.broker_id} coordinates no transactions"
        raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    return context.transactions


async def init_transactional_producer(
    context: NodeContext, transactional_id: str, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return the producer of a transactional id, and fence the one before. Its open transaction is aborted first.

    Raises:
        TidelogError: The error of the call.
    """
    _check_id(transactional_id)
    coordinator = coordinator_of(context)
    asked = core.InitProducerIdRequest(
        transactional_id,
        request.transaction_timeout_ms,
        Producer(
            NO_PRODUCER_ID if request.producer_id is None else request.producer_id,
            NO_PRODUCER_EPOCH if request.producer_epoch is None else request.producer_epoch,
        ),
        request.enable_two_phase_commit,
        request.keep_prepared_txn,
    )
    answer = await _ask(coordinator, transactional_id, asked, core.InitProducerIdResponse)
    if answer.error is not None:
        raise answer.error
    has_ongoing = answer.ongoing.id != NO_PRODUCER_ID
    return InitProducerIdResponse(
        answer.producer.id,
        answer.producer.epoch,
        answer.ongoing.id if has_ongoing else None,
        answer.ongoing.epoch if has_ongoing else None,
        coordinator.version,
    )


async def add_partitions_to_txn(context: NodeContext, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    """Add partitions to open transactions, or verify that they have them."""

    async def add(transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
        return await _add_partitions(context, transaction)

    return AddPartitionsToTxnResponse(tuple(await _each(request.transactions, add)))


async def add_offsets_to_txn(context: NodeContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Add the partition of a group's offsets to the open transaction."""
    try:
        coordinator = coordinator_of(context)
        _check_id(request.transactional_id)
        asked = core.AddPartitionsRequest(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            (_offsets_partition(context, request.group_id),),
        )
        answer = await _ask(coordinator, request.transactional_id, asked, core.AddPartitionsResponse)
    except TidelogError as error:
        return AddOffsetsToTxnResponse(error.detached())
    return AddOffsetsToTxnResponse(answer.error)


async def end_txn(context: NodeContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort the open transaction. The answer comes when that is durable, before the partitions have it."""
    try:
        coordinator = coordinator_of(context)
        _check_id(request.transactional_id)
        asked = core.EndTxnRequest(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            request.transaction_version,
        )
        answer = await _ask(coordinator, request.transactional_id, asked, core.EndTxnResponse)
    except TidelogError as error:
        return EndTxnResponse(error.detached())
    if answer.error is not None:
        return EndTxnResponse(answer.error)
    return EndTxnResponse(None, answer.producer.id, answer.producer.epoch, coordinator.version)


async def describe_transactions(
    context: NodeContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe the states of transactional ids that this node coordinates."""

    async def describe(transactional_id: str) -> TransactionDescription:
        try:
            coordinator = coordinator_of(context)
            _check_id(transactional_id)
            asked = core.DescribeTransactionsRequest((transactional_id,))
            answer = await _ask(coordinator, transactional_id, asked, core.DescribeTransactionsResponse)
        except TidelogError as error:
            return TransactionDescription(transactional_id, error.detached())
        (found,) = answer.transactions
        if found.metadata is None:
            return TransactionDescription(transactional_id, found.error)
        return await _description(transactional_id, found.metadata)

    return DescribeTransactionsResponse(tuple(await _each(request.transactional_ids, describe)))


async def list_transactions(context: NodeContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactional ids that this node coordinates.

    Those of a shard that cannot answer yet are omitted, with the error.
    """
    names = dict.fromkeys(request.state_filters)
    if len(names) > MOST_STATES:
        text = f"the request names {len(names)} states of transactions, at most {MOST_STATES} are allowed"
        return ListTransactionsResponse(error_for(ErrorCode.INVALID_REQUEST, text))
    unknown = tuple(name for name in names if name not in _STATES)
    states = frozenset(_STATES[name] for name in names if name in _STATES)
    if names and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    duration_ms = request.duration_filter_ms
    asked = core.ListTransactionsRequest(
        states,
        frozenset(request.producer_id_filters),
        -1 if duration_ms is None else duration_ms,
        request.transactional_id_pattern,
    )
    try:
        coordinator = coordinator_of(context)
        parts = await _each(coordinator.shards(), lambda shard: _list_shard(coordinator, shard, asked))
    except TidelogError as error:
        return ListTransactionsResponse(error.detached(), unknown_state_filters=unknown)
    failure = next((part.error for part in parts if part.error is not None), None)
    found = [
        TransactionListing(line.transactional_id, line.producer_id, line.state.label)
        async for line in TimeSlices().of(line for part in parts for line in part.transactions)
    ]
    return ListTransactionsResponse(failure, tuple(found), unknown)


async def _list_shard(
    coordinator: TransactionCoordinator, shard: int, request: core.ListTransactionsRequest
) -> core.ListTransactionsResponse:
    try:
        return await _ask_shard(coordinator, shard, request, core.ListTransactionsResponse)
    except TidelogError as error:
        is_elsewhere = error.code is ErrorCode.NOT_COORDINATOR
        return core.ListTransactionsResponse(error=None if is_elsewhere else error.detached())


async def _add_partitions(context: NodeContext, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    partitions = await _distinct(transaction.topics)
    missing = {p for p in partitions if context.metadata.image.partition(*p) is None}
    if missing:
        # As in Kafka, nothing is added.
        errors = {p: _missing(p) if p in missing else _not_attempted(p) for p in partitions}
        return await _partition_results(transaction, errors)
    try:
        coordinator = coordinator_of(context)
        _check_id(transaction.transactional_id)
        asked = core.AddPartitionsRequest(
            transaction.transactional_id,
            Producer(transaction.producer_id, transaction.producer_epoch),
            tuple(partitions),
            transaction.verify_only,
            transaction.transaction_version,
        )
        answer = await _ask(coordinator, transaction.transactional_id, asked, core.AddPartitionsResponse)
    except TidelogError as error:
        return AddPartitionsToTxnResult(transaction.transactional_id, error.detached())
    if answer.error is not None:
        return AddPartitionsToTxnResult(transaction.transactional_id, answer.error)
    return await _partition_results(transaction, answer.errors or {})


async def _distinct(topics: Sequence[TopicPartitions]) -> dict[TopicPartition, None]:
    found: dict[TopicPartition, None] = {}
    slices = TimeSlices()
    for topic in topics:
        async for index in slices.of(topic.partitions):
            found[topic.name, index] = None
    return found


async def _partition_results(
    transaction: AddPartitionsToTxnTransaction, errors: core.PartitionErrors
) -> AddPartitionsToTxnResult:
    slices = TimeSlices()
    topics = []
    for topic in transaction.topics:
        results = [
            AddPartitionsToTxnPartitionResult(index, errors.get((topic.name, index)))
            async for index in slices.of(topic.partitions)
        ]
        topics.append(AddPartitionsToTxnTopicResult(topic.name, tuple(results)))
    return AddPartitionsToTxnResult(transaction.transactional_id, None, tuple(topics))


async def _description(transactional_id: str, metadata: TransactionMetadata) -> TransactionDescription:
    by_topic = groupby(sorted(metadata.partitions), key=lambda partition: partition[0])
    topics = [
        TopicPartitions(topic, tuple(index for _, index in partitions))
        async for topic, partitions in TimeSlices().of(by_topic)
    ]
    return TransactionDescription(
        transactional_id,
        None,
        metadata.state.label,
        metadata.timeout_ms,
        metadata.started_ms,
        metadata.producer.id,
        metadata.producer.epoch,
        tuple(topics),
    )


async def _each(items: Iterable[Q], call: Callable[[Q], Awaitable[R]]) -> list[R]:
    """Return the results of all items in order. At most _AT_ONCE are in progress."""
    everything = list(items)
    found: list[R] = []
    async for start in TimeSlices().of(range(0, len(everything), _AT_ONCE)):
        found += await asyncio.gather(*(call(item) for item in everything[start : start + _AT_ONCE]))
    return found


async def _ask(
    coordinator: TransactionCoordinator, transactional_id: str, request: core.TransactionRequest, kind: type[C]
) -> C:
    return await _ask_shard(coordinator, coordinator.shard_of(transactional_id), request, kind)


async def _ask_shard(
    coordinator: TransactionCoordinator, shard: int, request: core.TransactionRequest, kind: type[C]
) -> C:
    response = await coordinator.call(shard, request, _ANY_CLIENT)
    assert isinstance(response, kind), response
    return response


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise error_for(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")


def _offsets_partition(context: NodeContext, group_id: str) -> TopicPartition:
    topic = context.metadata.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        coordinator_of(context).want_topic(OFFSETS_TOPIC)
        text = f"{OFFSETS_TOPIC} is being created"
        raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    return OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions))


def _missing(partition: TopicPartition) -> TidelogError:
    text = f"there is no partition {partition[0]}-{partition[1]}"
    return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _not_attempted(partition: TopicPartition) -> TidelogError:
    text = f"{partition[0]}-{partition[1]} is not added, because another partition of the request does not exist"
    return error_for(ErrorCode.OPERATION_NOT_ATTEMPTED, text)
