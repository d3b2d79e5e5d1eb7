"""The verification of transactions before their first batch in a partition (KIP-890).

The leader of a partition asks the transaction coordinator to add the partition to the transaction, or for producers of
older transaction versions whether it was added. The batch is appended with the guard under which the question was
asked, so that the log refuses it if the transaction has ended meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError, error_for
from tidelog_foundation.records import NO_SEQUENCE, RecordBatchHeader, parse_header
from tidelog_foundation.records.header import NO_PARTITION_LEADER_EPOCH, TRANSACTIONAL_MASK
from tidelog_foundation.time_slices import TimeSlices
from tidelog_node.coordination import OFFSETS_TOPIC
from tidelog_node.groups.messages import TxnOffsetCommitRequest
from tidelog_node.log import NO_GUARD
from tidelog_node.partitions import Partition
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, MAX_PRODUCER_EPOCH, Producer, TopicPartition
from tidelog_node.transactions.verification import Answer, Question
from tidelog_quorum.metadata.features import SUPPORTED_FEATURES, TRANSACTION_VERSION

if TYPE_CHECKING:
    from tidelog_node.handlers.context import NodeContext
    from tidelog_node.handlers.produce import ProduceBatches

R = TypeVar("R")
_ABSENT: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@dataclass(frozen=True, slots=True)
class Verified:
    """The guards with which batches are appended, and the errors of the others, by their position in the request."""

    guards: dict[int, int] = field(default_factory=dict)
    errors: dict[int, TidelogError] = field(default_factory=dict)


class _Repeat(Enum):
    """When a question is repeated."""

    NO = auto()
    LATER = auto()
    """The markers of the last transaction are being written."""
    AT_ONCE = auto()
    """The marker of the last transaction was written after the question, and has dropped its guard."""


class _Batch(NamedTuple):
    """A transactional batch of a partition that this node hosts."""

    place: int
    partition: Partition
    header: RecordBatchHeader


def needs_verification(context: NodeContext, request: ProduceBatches) -> bool:
    """Return whether a batch of the request would begin a transaction in its partition."""
    return any(batch.partition.needs_verification(batch.header) for _, batch in _batches(context, request) if batch)


async def verify(context: NodeContext, request: ProduceBatches) -> Verified:
    """Ask the coordinator about the request's batches that begin transactions."""
    return await _repeated(context, lambda: _verify_once(context, request))


async def _repeated(context: NodeContext, ask: Callable[[], Awaitable[tuple[R, _Repeat]]]) -> R:
    """Return the result of a question, repeated for a short time as long as the second value of its answer says so.

    With transaction version 2, a producer begins its next transaction while the markers of the last one are written.
    The answer is CONCURRENT_TRANSACTIONS then, or comes after a marker that has dropped the guard of the question. As
    in Kafka, the question is repeated, since that costs less than another request of the producer.
    """
    loop = asyncio.get_running_loop()
    settings = context.verification()
    deadline = loop.time() + settings.retry_backoff_max_ms / 1000
    while True:
        result, repeat = await ask()
        if repeat is _Repeat.NO or loop.time() >= deadline:
            return result
        await asyncio.sleep(settings.retry_backoff_ms / 1000 if repeat is _Repeat.LATER else 0)


def check_version(version: int) -> None:
    """Refuse a ``transaction.version`` that no client has.

    Raises:
        TidelogError: INVALID_REQUEST.
    """
    versions = SUPPORTED_FEATURES[TRANSACTION_VERSION]
    if not versions.min_level <= version <= versions.max_level:
        text = f"the request has {TRANSACTION_VERSION} {version}, from {versions.min_level} to"
        raise error_for(ErrorCode.INVALID_REQUEST, f"{text} {versions.max_level} are known")


async def verify_offsets(context: NodeContext, index: int, request: TxnOffsetCommitRequest) -> int:
    """Return the guard for offsets that a transaction commits in a partition of __consumer_offsets.

    Raises:
        TidelogError: The coordinator did not confirm that the partition belongs to the transaction, or this node does
            not lead it.
    """
    producer = Producer(request.producer_id, request.producer_epoch)
    if producer.id < 0:
        raise error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"the producer has id {producer.id}, ids begin with 0")
    if not 0 <= producer.epoch <= MAX_PRODUCER_EPOCH:
        text = f"producer {producer.id} has epoch {producer.epoch}, epochs are 0 to {MAX_PRODUCER_EPOCH}"
        raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH, text)
    check_version(request.transaction_version)
    guard, code = await _repeated(context, lambda: _verify_offsets_once(context, index, request, producer))
    if code is ErrorCode.NONE:
        return guard
    if code in _ABSENT:
        # The other codes would send the client away from the coordinator of its group, which is this node.
        text = f"the transaction coordinator did not confirm that the group belongs to the transaction: {code.name}"
        raise error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, text)
    raise refusal(code, adds=True)


async def _verify_offsets_once(
    context: NodeContext, index: int, request: TxnOffsetCommitRequest, producer: Producer
) -> tuple[tuple[int, ErrorCode], _Repeat]:
    partition, header = context.partition(OFFSETS_TOPIC, index), _header_of(producer)
    guard = partition.begin_verification(header, begins_at_zero=False)
    adds = request.transaction_version >= EPOCH_BUMP_VERSION
    if guard == NO_GUARD or not (adds or context.verification().enable):
        return (guard, ErrorCode.NONE), _Repeat.NO
    asked = (OFFSETS_TOPIC, index)
    answer = await _ask(context, Question(request.transactional_id, producer, frozenset((asked,)), adds))
    code = answer.get(asked, ErrorCode.NONE)
    if adds and code is ErrorCode.NONE and _is_overtaken(partition, header, guard):
        return (guard, ErrorCode.CONCURRENT_TRANSACTIONS), _Repeat.AT_ONCE
    is_early = adds and code is ErrorCode.CONCURRENT_TRANSACTIONS
    return (guard, code), _Repeat.LATER if is_early else _Repeat.NO


def _header_of(producer: Producer) -> RecordBatchHeader:
    """Return the header of a producer's batch without a sequence."""
    return RecordBatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        crc=0,
        attributes=TRANSACTIONAL_MASK,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )


async def _verify_once(context: NodeContext, request: ProduceBatches) -> tuple[Verified, _Repeat]:
    """Return the result, and when to ask again because the markers of the last transaction change it."""
    batches, places = await _in_slices(_batches(context, request))
    producers = {(batch.header.producer_id, batch.header.producer_epoch) for batch in batches}
    if len(producers) > 1:
        text = f"the request has transactional batches of {len(producers)} producers"
        error = error_for(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        return Verified(errors=dict.fromkeys(range(places), error)), _Repeat.NO
    verified, asked = Verified(), dict[TopicPartition, int]()
    adds = request.transaction_version >= EPOCH_BUMP_VERSION
    async for place, partition, header in TimeSlices().of(batches):
        try:
            guard = partition.begin_verification(header, begins_at_zero=adds)
        except TidelogError as error:
            verified.errors[place] = error.detached()
            continue
        if guard != NO_GUARD:
            verified.guards[place] = guard
            asked[partition.topic, partition.index] = place
    if not asked or not (adds or context.verification().enable):
        return verified, _Repeat.NO
    [(producer_id, producer_epoch)] = producers
    question = Question(request.transactional_id, Producer(producer_id, producer_epoch), frozenset(asked), adds)
    answer = await _ask(context, question)
    codes = (_overtaken(batches, verified.guards) if adds else {}) | dict(answer)
    verified.errors.update((asked[partition], refusal(code, adds=adds)) for partition, code in codes.items())
    if not adds or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
        return verified, _Repeat.NO
    return verified, _Repeat.LATER if ErrorCode.CONCURRENT_TRANSACTIONS in answer.values() else _Repeat.AT_ONCE


def _overtaken(batches: list[_Batch], guards: dict[int, int]) -> dict[TopicPartition, ErrorCode]:
    """Return CONCURRENT_TRANSACTIONS for each partition in which a marker has dropped the guard of the question."""
    return {
        (partition.topic, partition.index): ErrorCode.CONCURRENT_TRANSACTIONS
        for place, partition, header in batches
        if place in guards and _is_overtaken(partition, header, guards[place])
    }


def _is_overtaken(partition: Partition, header: RecordBatchHeader, guard: int) -> bool:
    """Return whether a marker has dropped a guard. The next question then gets a new guard."""
    with contextlib.suppress(TidelogError):
        return partition.begin_verification(header, begins_at_zero=header.base_sequence >= 0) not in (NO_GUARD, guard)
    return False


async def _ask(context: NodeContext, question: Question) -> Answer:
    if context.verifier is None:
        return dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return await context.verifier.ask(question)


def refusal(code: ErrorCode, *, adds: bool) -> TidelogError:
    """Return the error of a partition that the coordinator did not confirm.

    Old producers do not know every error of a coordinator. They repeat a request after NOT_ENOUGH_REPLICAS, without new
    metadata (ReplicaManager.handleProduceAppend).
    """
    if code is ErrorCode.PRODUCER_FENCED:
        return error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer has the same transactional id")
    if code in _ABSENT or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        text = f"the coordinator did not confirm that the partition belongs to the transaction: {code.name}"
        return error_for(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    if code is ErrorCode.INVALID_TXN_STATE:
        return error_for(code, "the partition was not added to the transaction")
    return error_for(code)


def _batches(context: NodeContext, request: ProduceBatches) -> Iterator[tuple[int, _Batch | None]]:
    """Yield the position of each batch, with the batch if it is transactional. Appends report the other errors."""
    place = -1
    for topic in request.topics:
        for item in topic.partitions:
            place += 1
            partition = context.partitions.get(topic.name, item.index)
            header = None if partition is None else _transactional_header(item.records)
            if partition is None or header is None:
                yield place, None
            else:
                yield place, _Batch(place, partition, header)


def _transactional_header(records: bytes | memoryview) -> RecordBatchHeader | None:
    try:
        header = parse_header(records)
    except CorruptRecordError:
        return None
    is_data = header.is_transactional and not header.is_control
    return header if is_data and header.producer_id >= 0 else None


async def _in_slices(batches: Iterator[tuple[int, _Batch | None]]) -> tuple[list[_Batch], int]:
    """Return the transactional batches, and the number of all."""
    found, count = [], 0
    async for _, batch in TimeSlices().of(batches):
        count += 1
        if batch is not None:
            found.append(batch)
    return found, count
