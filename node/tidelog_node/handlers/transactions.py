"""The requests of transactional producers and of administrators that the transaction coordinator answers (KIP-98).

Each request goes to the shards of its transactional ids, if this node leads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import OFFSETS_TOPIC, TRANSACTION_TOPIC, TransactionCoordinator
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
from tidelog_node.handlers.transaction_verification import check_version
from tidelog_node.shards.events import ClientIdentity
from tidelog_node.shards.name_regex import NameRegex
from tidelog_node.shards.wire import MAX_STRING_BYTES, is_too_long
from tidelog_node.transactions import requests as core
from tidelog_node.transactions.partition_order import in_order
from tidelog_node.transactions.states import (
    EPOCH_BUMP_VERSION,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TopicPartition,
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
_KNOWN_STATES = {*_STATES, "PrepareEpochFence"}
"""The last one is a state of Kafka's coordinator that is never recorded."""

_COORDINATORS_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC})


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
    """Return the producer of a transactional id, after fencing its predecessor and aborting the open transaction.

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
            connection_us=request.connection_us,
        )
        answer = await _ask(coordinator, request.transactional_id, asked, core.AddPartitionsResponse)
    except TidelogError as error:
        return AddOffsetsToTxnResponse(error.detached())
    return AddOffsetsToTxnResponse(answer.error)


async def end_txn(context: NodeContext, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort the open transaction. Answer once the decision is durable; the markers follow later."""
    try:
        coordinator = coordinator_of(context)
        _check_id(request.transactional_id)
        check_version(request.transaction_version)
        asked = core.EndTxnRequest(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            request.transaction_version,
            request.connection_us,
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
    """Describe the states of transactional ids that this node coordinates, in the order of the request."""
    shards: dict[int, list[str]] = {}
    found: dict[str, TransactionDescription] = {}
    slices = TimeSlices()
    async for transactional_id in slices.of(dict.fromkeys(request.transactional_ids)):
        try:
            _check_id(transactional_id)
            shard = coordinator_of(context).shard_of(transactional_id)
            shards.setdefault(shard, []).append(transactional_id)
        except TidelogError as error:
            found[transactional_id] = TransactionDescription(transactional_id, error.detached())
    parts = [(shard, part) for shard, ids in shards.items() for part in _parts(ids)]
    for described in await _each(parts, lambda part: _describe(coordinator_of(context), *part)):
        found.update((each.transactional_id, each) for each in described)
    return DescribeTransactionsResponse(tuple([found[name] async for name in slices.of(request.transactional_ids)]))


async def list_transactions(context: NodeContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactional ids that this node coordinates.

    If a shard cannot answer yet, the response omits the shard's ids and has the error.
    """
    names = dict.fromkeys(request.state_filters)
    if len(names) > MOST_STATES:
        text = f"the request names {len(names)} states of transactions, at most {MOST_STATES} are allowed"
        return ListTransactionsResponse(error_for(ErrorCode.INVALID_REQUEST, text))
    unknown = tuple(name for name in names if name not in _KNOWN_STATES)
    states = frozenset(_STATES[name] for name in names if name in _STATES)
    if names and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    duration_ms, pattern = request.duration_filter_ms, request.transactional_id_pattern
    try:
        asked = core.ListTransactionsRequest(
            states,
            frozenset(request.producer_id_filters),
            -1 if duration_ms is None else duration_ms,
            NameRegex(pattern) if pattern else None,
        )
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


async def _describe(
    coordinator: TransactionCoordinator, shard: int, ids: tuple[str, ...]
) -> list[TransactionDescription]:
    try:
        asked = core.DescribeTransactionsRequest(ids)
        answer = await _ask_shard(coordinator, shard, asked, core.DescribeTransactionsResponse)
    except TidelogError as error:
        said = error.detached()
        return [TransactionDescription(transactional_id, said) for transactional_id in ids]
    return [await _description(found) async for found in TimeSlices().of(answer.transactions)]


async def _description(found: core.TransactionDescription) -> TransactionDescription:
    metadata = found.metadata
    if metadata is None:
        return TransactionDescription(found.transactional_id, found.error)
    slices = TimeSlices()
    by_topic: dict[str, list[int]] = {}
    async for partition in slices.of(in_order(metadata.partitions)):
        if partition is not None:
            by_topic.setdefault(partition[0], []).append(partition[1])
    topics = [TopicPartitions(topic, tuple(indexes)) async for topic, indexes in slices.of(by_topic.items())]
    return TransactionDescription(
        found.transactional_id,
        None,
        metadata.state.label,
        metadata.timeout_ms,
        metadata.started_ms,
        metadata.producer.id,
        metadata.producer.epoch,
        tuple(topics),
    )


async def _add_partitions(context: NodeContext, transaction: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    image, slices = context.metadata.image, TimeSlices()
    partitions: dict[TopicPartition, None] = {}
    refused: dict[TopicPartition, TidelogError] = {}
    async for topic in slices.of(transaction.topics):
        async for index in slices.of(topic.partitions):
            if topic.name in _COORDINATORS_TOPICS and _is_of_client(transaction):
                refused[topic.name, index] = _internal(topic.name)
            elif (partition := image.partition(topic.name, index)) is None:
                refused[topic.name, index] = _missing(topic.name, index)
            elif partition.is_mirror:
                refused[topic.name, index] = _read_only(topic.name)
            partitions[topic.name, index] = None
    if refused:
        # As in Kafka, nothing is added.
        return await _partition_results(transaction, refused, _not_attempted())
    try:
        coordinator = coordinator_of(context)
        _check_id(transaction.transactional_id)
        check_version(transaction.transaction_version)
        asked = core.AddPartitionsRequest(
            transaction.transactional_id,
            Producer(transaction.producer_id, transaction.producer_epoch),
            tuple(partitions),
            transaction.verify_only,
            transaction.transaction_version,
            transaction.connection_us,
        )
        answer = await _ask(coordinator, transaction.transactional_id, asked, core.AddPartitionsResponse)
    except TidelogError as error:
        return AddPartitionsToTxnResult(transaction.transactional_id, error.detached())
    if answer.error is not None:
        return AddPartitionsToTxnResult(transaction.transactional_id, answer.error.detached())
    return await _partition_results(transaction, answer.errors or {}, None)


def _is_of_client(transaction: AddPartitionsToTxnTransaction) -> bool:
    """Return whether a client asks, and not the leader of a partition."""
    return not transaction.verify_only and transaction.transaction_version < EPOCH_BUMP_VERSION


async def _partition_results(
    transaction: AddPartitionsToTxnTransaction, errors: core.PartitionErrors, others: TidelogError | None
) -> AddPartitionsToTxnResult:
    """Return the result with the errors of partitions, and that of all others."""
    slices = TimeSlices()
    topics = []
    async for topic in slices.of(transaction.topics):
        results = [
            AddPartitionsToTxnPartitionResult(index, errors.get((topic.name, index), others))
            async for index in slices.of(topic.partitions)
        ]
        topics.append(AddPartitionsToTxnTopicResult(topic.name, tuple(results)))
    return AddPartitionsToTxnResult(transaction.transactional_id, None, tuple(topics))


async def _each(items: Sequence[Q], call: Callable[[Q], Awaitable[R]]) -> list[R]:
    """Return the results of all items in order. At most _AT_ONCE are in progress, and begin between other tasks."""
    if len(items) == 1:
        return [await call(items[0])]
    places = asyncio.Semaphore(_AT_ONCE)
    found: dict[int, R] = {}

    async def run(place: int, item: Q) -> None:
        try:
            found[place] = await call(item)
        finally:
            places.release()

    async with asyncio.TaskGroup() as tasks:
        for place, item in enumerate(items):
            await places.acquire()
            tasks.create_task(run(place, item), name="part-of-transactions")
            # The part runs now, up to its first wait.
            await asyncio.sleep(0)
    return [found[place] for place in range(len(found))]


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


def _parts(ids: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the ids in parts that one step of a shard describes."""
    for start in range(0, len(ids), _AT_ONCE):
        yield tuple(ids[start : start + _AT_ONCE])


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise error_for(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")


def _offsets_partition(context: NodeContext, group_id: str) -> TopicPartition:
    if is_too_long(group_id):
        text = f"a group's id of {len(group_id)} characters does not fit into {MAX_STRING_BYTES} bytes"
        raise error_for(ErrorCode.INVALID_GROUP_ID, text)
    topic = context.metadata.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        coordinator_of(context).want_topic(OFFSETS_TOPIC)
        text = f"{OFFSETS_TOPIC} is being created"
        raise error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    return OFFSETS_TOPIC, partition_for(group_id, len(topic.partitions))


def _missing(topic: str, index: int) -> TidelogError:
    return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")


def _read_only(topic: str) -> TidelogError:
    text = f"{topic} is a mirror topic, which is read-only until it is promoted or failed over"
    return error_for(ErrorCode.INVALID_REQUEST, text)


def _internal(topic: str) -> TidelogError:
    return error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"clients do not write to {topic}")


def _not_attempted() -> TidelogError:
    text = "the partition is not added, because another one of the request cannot be"
    return error_for(ErrorCode.OPERATION_NOT_ATTEMPTED, text)
