"""Conversion of a transactional producer's requests to messages, and of the coordinators' answers."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.cluster import ClusterClient
from tidelog.cluster.answers import Result, error_of, group_by_topic
from tidelog.cluster.connections import Connection
from tidelog.cluster.coordinator import Coordinated, Coordinators
from tidelog.producer.config import ProducerConfig
from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog.producer.core.transaction_requests import (
    AddGroup,
    AddPartitions,
    CommitOffsets,
    EndTransaction,
    InitProducer,
    PartitionErrors,
    ProducerGiven,
    Request,
)
from tidelog.producer.core.transaction_scope import TopicPartition
from tidelog.v1 import group_service_pb2 as group_pb
from tidelog.v1 import log_service_pb2 as log_pb
from tidelog.v1 import transaction_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import TidelogError

_ATTEMPT_MS = 10_000
"""The longest wait for one answer, so that a paused coordinator does not hold up its successor."""


class Coordination:
    """The coordinators of one producer's transactions. Used on the network thread.

    ``coordinators`` are those that producers of several transactional ids share.
    """

    def __init__(
        self, cluster: ClusterClient, config: ProducerConfig, coordinators: Coordinators | None = None
    ) -> None:
        assert config.transactional_id is not None
        self._transactional_id = config.transactional_id
        self._timeout_ms = config.transaction_timeout_ms
        self._is_two_phase = config.transaction_two_phase_commit_enable
        self._attempt_ms = min(_ATTEMPT_MS, config.request_timeout_ms)
        self._coordinators = coordinators or Coordinators(cluster, Coordinated.TRANSACTIONAL_ID)
        self._groups = Coordinators(cluster)

    async def execute(self, request: Request) -> ProducerGiven | PartitionErrors:
        """Send a request once, and return the answer.

        Raises:
            TidelogError: the error of the request as a whole.
        """
        match request:
            case InitProducer():
                return await self._initialize(request)
            case AddPartitions():
                return await self._add_partitions(request)
            case AddGroup():
                return await self._add_group(request)
            case CommitOffsets():
                return await self._commit_offsets(request)
            case EndTransaction():
                return await self._end(request)

    async def _initialize(self, request: InitProducer) -> ProducerGiven:
        message = log_pb.InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            enable_two_phase_commit=self._is_two_phase,
            keep_prepared_txn=request.keep_prepared,
        )
        if request.producer is not None:
            message.producer_id, message.producer_epoch = request.producer

        async def ask(connection: Connection, timeout_s: float) -> log_pb.InitProducerIdResponse:
            return await connection.log.InitProducerId(message, timeout=timeout_s)

        given = await self._coordinators.ask_once(
            self._transactional_id, ask, lambda _: (), timeout_ms=self._attempt_ms
        )
        kept = None
        if given.HasField("ongoing_txn_producer_id"):
            kept = ProducerIdAndEpoch(given.ongoing_txn_producer_id, given.ongoing_txn_producer_epoch)
        producer = ProducerIdAndEpoch(given.producer_id, given.producer_epoch)
        return ProducerGiven(producer, given.transaction_version, kept)

    async def _add_partitions(self, request: AddPartitions) -> PartitionErrors:
        transaction = pb.AddPartitionsToTxnTransaction(
            transactional_id=self._transactional_id,
            producer_id=request.producer.producer_id,
            producer_epoch=request.producer.epoch,
            topics=[
                pb.TransactionTopic(name=name, partitions=partitions)
                for name, partitions in group_by_topic(sorted(request.partitions)).items()
            ],
        )
        message = pb.AddPartitionsToTxnRequest(transactions=[transaction])

        async def ask(connection: Connection, timeout_s: float) -> pb.AddPartitionsToTxnResponse:
            return await connection.transactions.AddPartitionsToTxn(message, timeout=timeout_s)

        def errors_of(response: pb.AddPartitionsToTxnResponse) -> Iterable[Error]:
            return (found.error for found in response.transactions if found.HasField("error"))

        response = await self._coordinators.ask_once(
            self._transactional_id, ask, errors_of, timeout_ms=self._attempt_ms
        )
        for found in response.transactions:
            _check(found)
        return PartitionErrors(
            {
                (topic.name, result.index): error
                for found in response.transactions
                for topic in found.topics
                for result in topic.partitions
                if (error := error_of(result)) is not None
            }
        )

    async def _add_group(self, request: AddGroup) -> PartitionErrors:
        message = pb.AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=request.producer.producer_id,
            producer_epoch=request.producer.epoch,
            group_id=request.group_id,
        )

        async def ask(connection: Connection, timeout_s: float) -> pb.AddOffsetsToTxnResponse:
            return await connection.transactions.AddOffsetsToTxn(message, timeout=timeout_s)

        _check(await self._coordinators.ask_once(self._transactional_id, ask, _own_error, timeout_ms=self._attempt_ms))
        return PartitionErrors({})

    async def _commit_offsets(self, request: CommitOffsets) -> PartitionErrors:
        message = self._txn_offset_commit(request)

        async def ask(connection: Connection, timeout_s: float) -> group_pb.TxnOffsetCommitResponse:
            return await connection.groups.TxnOffsetCommit(message, timeout=timeout_s)

        response = await self._groups.ask_once(
            request.member.group_id, ask, _errors_of_offsets, timeout_ms=self._attempt_ms
        )
        errors: dict[TopicPartition, TidelogError] = {
            (topic.name, result.index): error
            for topic in response.topics
            for result in topic.partitions
            if (error := error_of(result)) is not None
        }
        return PartitionErrors(errors)

    def _txn_offset_commit(self, request: CommitOffsets) -> group_pb.TxnOffsetCommitRequest:
        message = group_pb.TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=request.member.group_id,
            producer_id=request.producer.producer_id,
            producer_epoch=request.producer.epoch,
            generation_id_or_member_epoch=request.member.generation_id,
            member_id=request.member.member_id,
            group_instance_id=request.member.group_instance_id,
            transaction_version=request.version,
        )
        for name, offsets in group_by_topic((offset.topic, offset) for offset in request.offsets).items():
            topic = message.topics.add(name=name)
            for offset in offsets:
                topic.partitions.add(
                    index=offset.partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
        return message

    async def _end(self, request: EndTransaction) -> ProducerGiven:
        message = pb.EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=request.producer.producer_id,
            producer_epoch=request.producer.epoch,
            committed=request.committed,
            transaction_version=request.version,
        )

        async def ask(connection: Connection, timeout_s: float) -> pb.EndTxnResponse:
            return await connection.transactions.EndTxn(message, timeout=timeout_s)

        ended = await self._coordinators.ask_once(self._transactional_id, ask, _own_error, timeout_ms=self._attempt_ms)
        _check(ended)
        return ProducerGiven(ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch), ended.transaction_version)


def _own_error(response: Result) -> Iterable[Error]:
    return (response.error,) if response.HasField("error") else ()


def _errors_of_offsets(response: group_pb.TxnOffsetCommitResponse) -> Iterable[Error]:
    return (result.error for topic in response.topics for result in topic.partitions if result.HasField("error"))


def _check(result: Result) -> None:
    error = error_of(result)
    if error is not None:
        raise error
