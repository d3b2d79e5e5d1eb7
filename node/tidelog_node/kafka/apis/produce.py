"""Produce: appends in the order of a connection's requests, answered when ``acks`` is satisfied.

A request that need not wait is answered at once without a task. One that waits for replicas is answered from their
callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, NamedTuple

from tidelog_foundation.authorization import WRITE_TOPIC, WRITE_TRANSACTION, Access
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import HEADER_SIZE, is_transactional
from tidelog_node import handlers
from tidelog_node.handlers import NodeContext, PartitionOutcome, PendingProduce, TopicOutcome
from tidelog_node.handlers.produce import Acks
from tidelog_node.kafka.cluster_view import leader_endpoints
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import produce as wire
from tidelog_node.kafka.protocol.messages.produce_single import Appended, SingleBatch, decode_single, encode_single
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Api, Body, Caller, CloseConnection, KafkaNode, Request
from tidelog_node.quotas.usage import RequestUsage
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION

_ACKS: Final = {-1: Acks.ALL, 0: Acks.NONE, 1: Acks.LEADER}
_NO_ANSWER: Final = 0
_MAGIC_POSITION: Final = 16
_MAGIC: Final = 2
_ATTRIBUTES_POSITION: Final = 22
_CODEC_MASK: Final = 0x07
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10


class ProduceApi:
    """Produce, after Kafka's ``KafkaApis.handleProduceRequest``."""

    key = ApiKey.PRODUCE
    versions = wire.VERSIONS
    flexible = wire.FLEXIBLE
    overlaps = True

    def begin(self, node: KafkaNode, request: Request) -> Body | Awaitable[Body | None] | None:
        """Append the batches. With ``acks=0`` there is no answer.

        Raises:
            MalformedMessageError: the bytes are no such request, or it has too many topics and partitions; nothing is
                appended.
            CloseConnection: a batch is refused with ``acks=0``: so the client hears of it, as with Kafka.
        """
        caller = request.caller
        request.reader.bound_elements(handlers.MAX_PRODUCE_ELEMENTS)
        access = None if node.guard is None else node.guard.access("PRODUCE", caller)
        if request.usage is None:
            single = decode_single(request.reader.view, request.reader.position, caller.version)
            pending = None if single is None else _begin_single(node.context, single, caller.version, access)
            if single is not None and pending is not None:
                return answer_single(node.context, caller, single, pending)
        size = request.reader.remaining
        asked = wire.decode_request(request.reader, caller.version)
        call = _Call(node.context, caller.listener, caller.version, asked, access, request.usage)
        if request.usage is not None:
            request.usage.append(size)
        return call.begin()


def _begin_single(
    context: NodeContext, single: SingleBatch, version: int, access: Access | None
) -> PendingProduce | None:
    """Append the only batch of a request, or return None if the request must take the way of all others."""
    acks = _ACKS.get(single.acks)
    if acks is None:
        return None
    if version >= wire.FIRST_WITH_TOPIC_IDS:
        name = context.metadata.topic_name(single.place)
    else:
        try:
            name = single.place.decode()
        except UnicodeDecodeError:
            return None
    if not name or (access is not None and not access.remembers(WRITE_TOPIC, name)):
        return None
    return handlers.try_begin_single(context, name, single.partition, single.records, acks, single.timeout_ms)


def answer_single(
    context: NodeContext, caller: Caller, single: SingleBatch, pending: PendingProduce
) -> Body | Awaitable[Body | None] | None:
    """Return the answer to a request with one batch.

    Raises:
        CloseConnection: The batch is refused with ``acks=0``.
    """
    return _Single(context, caller, single).answer(pending)


class _Single:
    """The answer to a request with one batch."""

    __slots__ = ("_caller", "_context", "_single")

    def __init__(self, context: NodeContext, caller: Caller, single: SingleBatch) -> None:
        self._context = context
        self._caller = caller
        self._single = single

    def answer(self, pending: PendingProduce) -> Body | Awaitable[Body | None] | None:
        """Return the answer to the appended batch."""
        if not pending.is_complete:
            return pending.completion(self._body)
        if self._single.acks == _NO_ANSWER and pending.outcomes[0].partitions[0].error is None:
            return None
        return self._body(pending.outcomes)

    def _body(self, outcomes: list[TopicOutcome]) -> Body | None:
        single, version = self._single, self._caller.version
        [outcome] = outcomes[0].partitions
        if outcome.error is None:
            appended = Appended(outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset)
            return [encode_single(single, appended, version)]
        is_by_id = version >= wire.FIRST_WITH_TOPIC_IDS
        topic = wire.ProduceTopic(outcomes[0].name, single.place if is_by_id else b"", [])
        asked = wire.ProduceRequest(None, single.acks, single.timeout_ms, [topic])
        return _Call(self._context, self._caller.listener, version, asked, None, None).answer(outcomes)


class _Batches(NamedTuple):
    acks: int
    timeout_ms: int
    topics: list[wire.ProduceTopic]
    transactional_id: str
    transaction_version: int


class _Call:
    """One request.

    ``_refused`` are the batches that are not appended, each with its topic's position in the request.
    """

    __slots__ = ("_access", "_asked", "_context", "_listener", "_refused", "_usage", "_version")

    def __init__(
        self,
        context: NodeContext,
        listener: str,
        version: int,
        asked: wire.ProduceRequest,
        access: Access | None,
        usage: RequestUsage | None,
    ) -> None:
        self._access = access
        self._context = context
        self._usage = usage
        self._listener = listener
        self._version = version
        self._asked = asked
        self._refused: list[tuple[int, PartitionOutcome]] = []

    def begin(self) -> Body | Awaitable[Body | None] | None:
        asked, context = self._asked, self._context
        acks = _ACKS.get(asked.acks)
        if self._version < wire.FIRST_SERVED:
            return self._refuse(
                ErrorCode.UNSUPPORTED_VERSION, f"Produce version {self._version} is not supported, the minimum is 3"
            )
        if acks is None:
            return self._refuse(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {asked.acks}, expected -1, 0 or 1")
        # Without a transactional id, each batch of a transaction is refused by itself.
        name, access = asked.transactional_id, self._access
        if access is not None and name is not None and not self._may_write_transaction(access, name):
            text = "Transactional Id authorization failed."
            return self._refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        self._sort_out()
        transaction_version = EPOCH_BUMP_VERSION if self._version >= wire.FIRST_ADDING_PARTITIONS else 0
        batches = _Batches(acks, asked.timeout_ms, asked.topics, asked.transactional_id or "", transaction_version)
        pending = handlers.try_begin_produce(context, batches)
        if pending is None:
            return self._begin_later(batches)
        if pending.is_complete:
            return self.answer(pending.outcomes)
        return pending.completion(self._body)

    def _begin_later(self, batches: _Batches) -> asyncio.Future[Body | None]:
        """Append in a task, which is shielded from cancellation if the client expects no answer."""
        turn = handlers.take_turn(self._context, batches)

        async def append() -> Body | None:
            pending = await handlers.begin_produce(self._context, batches, turn)
            if pending.is_complete:
                return self.answer(pending.outcomes)
            return await pending.completion(self._body)

        task = asyncio.create_task(append(), name="produce-later")
        # A task that is cancelled before its first step executes none of its code.
        task.add_done_callback(lambda _: turn.end())
        return task if self._asked.acks != _NO_ANSWER else asyncio.shield(task)

    def _refuse(self, code: ErrorCode, text: str) -> Body | None:
        return self.answer(handlers.refuse_produce(self._asked.topics, error_for(code, text)))

    def answer(self, outcomes: list[TopicOutcome]) -> Body | None:
        """Return the answer to a request whose outcomes are final.

        Raises:
            CloseConnection: a batch is refused with ``acks=0``.
        """
        if self._asked.acks != _NO_ANSWER:
            return self._body(outcomes)
        self._merge(outcomes)
        failed = [
            f"{topic.name or topic.topic_id.hex()}-{partition.index}: {partition.error}"
            for topic in outcomes
            for partition in topic.partitions
            if partition.error is not None
        ]
        if failed:
            raise CloseConnection(f"acks=0 and {len(failed)} batches are refused, the first is {failed[0]}")
        return None

    def _body(self, outcomes: list[TopicOutcome]) -> Body:
        self._merge(outcomes)
        if self._asked.transactional_id and self._version < wire.FIRST_WITH_ABORTABLE_ERRORS:
            _replace_abortable_errors(outcomes)
        leaders = [outcome.leader.leader_id for topic in outcomes for outcome in topic.partitions if outcome.leader]
        endpoints = leader_endpoints(self._context.metadata.image.brokers, leaders, self._listener) if leaders else ()
        throttle_time_ms = 0 if self._usage is None else self._usage.answer()
        writer = Writer()
        wire.encode_response(outcomes, endpoints, writer, self._version, throttle_time_ms)
        return writer.chunks()

    def _sort_out(self) -> None:
        """Look up the topics' names, and remove the batches that are invalid in a request of this version."""
        is_by_id = self._version >= wire.FIRST_WITH_TOPIC_IDS
        for place, topic in enumerate(self._asked.topics):
            if is_by_id and not self._find_name(topic):
                error = error_for(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic.topic_id.hex()}")
                self._refused += [(place, PartitionOutcome(item.index, error)) for item in topic.partitions]
                topic.partitions = []
                continue
            if self._access is not None and not self._access.has(WRITE_TOPIC, topic.name):
                denied = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
                self._refused += [(place, PartitionOutcome(item.index, denied)) for item in topic.partitions]
                topic.partitions = []
                continue
            topic.partitions = [item for item in topic.partitions if self._may_have(place, item)]

    def _may_write_transaction(self, access: Access, name: str) -> bool:
        """Return whether the caller may write in a transaction, or the request has no batch of it."""
        return access.has(WRITE_TRANSACTION, name) or not any(
            is_transactional(item.records) for topic in self._asked.topics for item in topic.partitions
        )

    def _may_have(self, place: int, item: wire.ProducePartition) -> bool:
        records = item.records
        is_batch = len(records) >= HEADER_SIZE and records[_MAGIC_POSITION] == _MAGIC
        if is_batch and not records[_ATTRIBUTES_POSITION] & (_TRANSACTIONAL | _ZSTD):
            return True
        error = self._fault(records, self._version)
        if error is not None:
            self._refused.append((place, PartitionOutcome(item.index, error)))
        return error is None

    def _find_name(self, topic: wire.ProduceTopic) -> bool:
        topic.name = self._context.metadata.topic_name(topic.topic_id) or ""
        return bool(topic.name)

    def _fault(self, records: memoryview, version: int) -> TidelogError | None:
        """Return the error of a batch that is invalid in this request (Kafka's ``ProduceRequest.validateRecords``)."""
        if len(records) < HEADER_SIZE:
            text = f"expected a record batch for each partition, found {len(records)} bytes"
            return error_for(ErrorCode.INVALID_RECORD, text)
        magic, attributes = records[_MAGIC_POSITION], records[_ATTRIBUTES_POSITION]
        if magic != _MAGIC:
            # Kafka treats an unknown magic as corruption in transit, after which the producer retries.
            code = ErrorCode.INVALID_RECORD if magic < _MAGIC else ErrorCode.CORRUPT_MESSAGE
            return error_for(code, f"expected a record batch of magic 2, found magic {magic}")
        if version < wire.FIRST_WITH_ZSTD and attributes & _CODEC_MASK == _ZSTD:
            text = f"zstd needs Produce version {wire.FIRST_WITH_ZSTD} or later, the request has version {version}"
            return error_for(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, text)
        if attributes & _TRANSACTIONAL and self._asked.transactional_id is None:
            text = "a transactional batch in a request without a transactional id"
            return error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        return None

    def _merge(self, outcomes: list[TopicOutcome]) -> None:
        for place, outcome in self._refused:
            outcomes[place].partitions.append(outcome)
        if self._version >= wire.FIRST_WITH_TOPIC_IDS:
            for topic, topic_outcome in zip(self._asked.topics, outcomes, strict=True):
                topic_outcome.topic_id = topic.topic_id


def _replace_abortable_errors(outcomes: list[TopicOutcome]) -> None:
    """Replace an error that old producers do not know (AddPartitionsToTxnManager)."""
    for topic in outcomes:
        for outcome in topic.partitions:
            if outcome.error is not None and outcome.error.code is ErrorCode.TRANSACTION_ABORTABLE:
                outcome.error = error_for(ErrorCode.INVALID_TXN_STATE, outcome.error.message)


APIS: tuple[Api, ...] = (ProduceApi(),)
