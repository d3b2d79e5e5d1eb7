"""Administration of transactions (KIP-664, KIP-994): list, describe, find their producers, and end them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from tidelog.admin.attempts import ATTEMPT_MS, AskCoordinator, ask_coordinators, ask_every_node
from tidelog.admin.operations import Future, Operations, Outcomes
from tidelog.cluster import ClusterClient, Connection, Coordinators, TopicPartitionKey
from tidelog.cluster.answers import error_of, group_by_topic
from tidelog.cluster.attempts import ask_leaders
from tidelog.cluster.coordinator import Coordinated
from tidelog.message import TopicPartition
from tidelog.v1 import log_service_pb2 as log_pb
from tidelog.v1 import transaction_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError

T = TypeVar("T")
_FENCING_MS: Final = 1
"""The transaction timeout of a request that only ends a transaction. No limit of a node is below it."""


class TransactionState(Enum):
    """The state of a transactional id, with Kafka's name."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One line of :meth:`TransactionAdmin.list_transactions`. ``coordinator_id`` is the node that coordinates it."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class ListTransactionsResult:
    """The transactional ids, and the errors of the nodes that did not answer."""

    valid: Sequence[TransactionListing]
    errors: Sequence[TidelogError]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id. ``start_ms`` is the start of its latest transaction, None if there was none.

    Times are in ms. ``partitions`` are those of the open transaction.
    """

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer of a partition. None stands for an unknown sequence, coordinator epoch or open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


class TransactionAdmin(Operations):
    """Operations on transactions. Part of the admin client."""

    def list_transactions(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int | None = None,
        transactional_id_pattern: str = "",
        request_timeout: float | None = None,
    ) -> Future[ListTransactionsResult]:
        """List the transactional ids of all nodes that match all filters; an empty filter matches all.

        ``duration_ms`` selects transactions that have been open for longer, and ``transactional_id_pattern``, a regular
        expression, whole ids. The ``errors`` of the result contain the nodes that did not answer.
        """
        request = pb.ListTransactionsRequest(
            state_filters=sorted(state.value for state in states),
            producer_id_filters=sorted(producer_ids),
            duration_filter_ms=duration_ms,
            transactional_id_pattern=transactional_id_pattern,
        )
        return self._future(_list(self._cluster, request, self._request_ms(request_timeout)))

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[TransactionDescription]]:
        """Describe transactional ids: state, producer, timeout, start and partitions of the open transaction.

        Futures fail with KafkaException: TRANSACTIONAL_ID_NOT_FOUND; COORDINATOR_NOT_AVAILABLE and similar errors if no
        coordinator answered in time.
        """
        ids = list(dict.fromkeys(transactional_ids))

        async def ask(
            connection: Connection, own: list[str], timeout_s: float
        ) -> Outcomes[str, TransactionDescription]:
            request = pb.DescribeTransactionsRequest(transactional_ids=own)
            response = await connection.transactions.DescribeTransactions(request, timeout=timeout_s)
            return {t.transactional_id: error_of(t) or _description(t) for t in response.transactions}

        return self._futures(ids, self._at_coordinators(ids, ask, request_timeout))

    def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        request_timeout: float | None = None,
    ) -> dict[TopicPartition, Future[list[ProducerDescription]]]:
        """Describe the idempotent producers of partitions, as their leaders or one node see them.

        Futures fail with KafkaException: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER if the node has no replica.
        """
        wanted = {(p.topic, p.partition): TopicPartition(p.topic, p.partition) for p in partitions}
        timeout_ms = self._request_ms(request_timeout)

        async def describe() -> Outcomes[TopicPartition, list[ProducerDescription]]:
            found: Outcomes[TopicPartitionKey, list[ProducerDescription]]
            if broker_id is None:
                found = await ask_leaders(self._cluster, wanted, _ask_producers, timeout_ms=timeout_ms)
            else:
                connection = await self._node(broker_id, timeout_ms, ErrorCode.BROKER_NOT_AVAILABLE)
                found = await _ask_producers(connection, list(wanted), timeout_ms)
            return {wanted[key]: outcome for key, outcome in found.items()}

        return self._futures(list(wanted.values()), describe())

    def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = -1,
        *,
        request_timeout: float | None = None,
    ) -> Future[None]:
        """Write an abort marker for a hanging transaction of one partition, as :meth:`describe_producers` shows it.

        This ends a transaction that its coordinator does not know. Of a transaction that the coordinator knows, the
        other partitions would still be committed: see :meth:`force_terminate_transaction`.

        The future fails with KafkaException: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        marker = log_pb.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=False,
            topics=[log_pb.WritableTxnMarkerTopic(name=partition.topic, partitions=[partition.partition])],
            coordinator_epoch=coordinator_epoch,
        )
        return self._future(_write_marker(self._cluster, partition, marker, self._request_ms(request_timeout)))

    def fence_producers(
        self, transactional_ids: Iterable[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[None]]:
        """Fence the producers of transactional ids, and abort their open transactions. Unknown ids are created.

        Futures fail with KafkaException: CONCURRENT_TRANSACTIONS if the markers were not written in time;
        COORDINATOR_NOT_AVAILABLE and similar errors if no coordinator answered in time.
        """
        ids = list(dict.fromkeys(transactional_ids))

        async def ask(connection: Connection, own: list[str], timeout_s: float) -> Outcomes[str, None]:
            return dict(zip(own, await asyncio.gather(*(_fence(connection, i, timeout_s) for i in own)), strict=True))

        return self._futures(ids, self._at_coordinators(ids, ask, request_timeout))

    def force_terminate_transaction(
        self, transactional_id: str, *, request_timeout: float | None = None
    ) -> Future[None]:
        """Abort the open transaction of a transactional id, even if prepared, and fence its producer (KIP-939).

        The future fails with KafkaException: TRANSACTIONAL_ID_NOT_FOUND; and as those of :meth:`fence_producers`.
        """

        async def ask(connection: Connection, own: list[str], timeout_s: float) -> Outcomes[str, None]:
            request = pb.DescribeTransactionsRequest(transactional_ids=own)
            (found,) = (await connection.transactions.DescribeTransactions(request, timeout=timeout_s)).transactions
            return {transactional_id: error_of(found) or await _fence(connection, transactional_id, timeout_s)}

        futures = self._futures([transactional_id], self._at_coordinators([transactional_id], ask, request_timeout))
        return futures[transactional_id]

    async def _at_coordinators(
        self, ids: Sequence[str], ask: AskCoordinator[T], timeout_s: float | None
    ) -> Outcomes[str, T]:
        coordinators = Coordinators(self._cluster, Coordinated.TRANSACTIONAL_ID)
        timeout_ms = self._request_ms(timeout_s)
        return await ask_coordinators(coordinators, ids, ask, backoff=self._cluster.backoff, timeout_ms=timeout_ms)


async def _list(
    cluster: ClusterClient, request: pb.ListTransactionsRequest, timeout_ms: float
) -> ListTransactionsResult:
    answers = await ask_every_node(
        cluster,
        "transactions",
        lambda c, timeout_s: c.transactions.ListTransactions(request, timeout=timeout_s),
        timeout_ms,
    )
    lines = [
        _listing(line, node) for node, response, _ in answers if response is not None for line in response.transactions
    ]
    listed = {line.transactional_id: line for line in lines}
    errors = [error for _, _, error in answers if error is not None]
    return ListTransactionsResult([listed[name] for name in sorted(listed)], errors)


async def _ask_producers(
    connection: Connection, keys: list[TopicPartitionKey], left_ms: float
) -> Outcomes[TopicPartitionKey, list[ProducerDescription]]:
    request = log_pb.DescribeProducersRequest(
        topics=[log_pb.DescribeProducersTopic(name=n, partitions=p) for n, p in group_by_topic(sorted(keys)).items()]
    )
    timeout_s = min(left_ms, ATTEMPT_MS) / 1000
    response = await connection.call(lambda c: c.log.DescribeProducers(request, timeout=timeout_s))
    return {
        (topic.name, result.index): error_of(result) or [_producer(each) for each in result.active_producers]
        for topic in response.topics
        for result in topic.partitions
    }


async def _write_marker(
    cluster: ClusterClient, partition: TopicPartition, marker: log_pb.WritableTxnMarker, timeout_ms: float
) -> None:
    key = (partition.topic, partition.partition)

    async def ask(
        connection: Connection, keys: list[TopicPartitionKey], left_ms: float
    ) -> Outcomes[TopicPartitionKey, bool]:
        request = log_pb.WriteTxnMarkersRequest(markers=[marker])
        timeout_s = min(left_ms, ATTEMPT_MS) / 1000
        response = await connection.call(lambda c: c.log.WriteTxnMarkers(request, timeout=timeout_s))
        results = {
            (topic.name, result.index): error_of(result)
            for found in response.markers
            for topic in found.topics
            for result in topic.partitions
        }
        return {each: results[each] or True for each in keys if each in results}

    outcome = (await ask_leaders(cluster, [key], ask, timeout_ms=timeout_ms))[key]
    if isinstance(outcome, TidelogError):
        raise outcome


async def _fence(connection: Connection, transactional_id: str, timeout_s: float) -> TidelogError | None:
    request = log_pb.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCING_MS)
    try:
        await connection.call(lambda c: c.log.InitProducerId(request, timeout=timeout_s))
    except TidelogError as error:
        return error
    return None


def _listing(line: pb.TransactionListing, node_id: int) -> TransactionListing:
    return TransactionListing(line.transactional_id, line.producer_id, _state(line.transaction_state), node_id)


def _description(found: pb.TransactionDescription) -> TransactionDescription:
    start_ms = found.transaction_start_time_ms
    partitions = [TopicPartition(topic.name, index) for topic in found.topics for index in sorted(topic.partitions)]
    return TransactionDescription(
        found.transactional_id,
        _state(found.transaction_state),
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        None if start_ms < 0 else start_ms,
        partitions,
    )


def _producer(found: log_pb.ActiveProducer) -> ProducerDescription:
    return ProducerDescription(
        found.producer_id,
        found.producer_epoch,
        _known(found.last_sequence),
        found.last_timestamp_ms,
        _known(found.coordinator_epoch),
        _known(found.current_txn_start_offset),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _state(name: str) -> TransactionState:
    try:
        return TransactionState(name)
    except ValueError:
        return TransactionState.UNKNOWN
