"""Produce: append to the partitions that this node leads, then wait according to ``acks``.

This module is independent of the listener. The request is any object of the shape of :class:`ProduceBatches`, and the
listener encodes the outcome. It has two halves, so that requests are appended in order while their answers may overtake
each other: :func:`begin_produce` appends, :class:`PendingProduce` waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, Protocol, TypeAlias, TypeVar

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.time_slices import TimeSlices
from tidelog_foundation.unexpected import report_unexpected
from tidelog_node.event_loop import Pending
from tidelog_node.fetching import CurrentLeader
from tidelog_node.handlers.context import NodeContext, leader_hint
from tidelog_node.handlers.produce_admission import Checks, Turn, check_in_thread, check_inline, survey_request
from tidelog_node.handlers.transaction_verification import Verified, needs_verification, verify
from tidelog_node.log import NO_GUARD, AppendInfo, CheckedBatch, RecordError, RefusedRecordsError
from tidelog_node.partitions import Partition, create_folders
from tidelog_quorum.metadata.description import INTERNAL_TOPICS

logger = logging.getLogger(__name__)
T = TypeVar("T")
MAX_PRODUCE_ELEMENTS: Final = 20_000
"""Topics and partitions of one request: they are appended and answered in one step of the loop, for order. So many of
the smallest batches take more than a mebibyte, which is what producers send at most by default."""
ProduceTurn: TypeAlias = Turn[Partition] | Turn[str]
"""A position among the requests for the same partitions, or among those of one transactional id."""
NO_OFFSET: Final = -1
NO_APPEND_TIME: Final = -1


class Acks(IntEnum):
    """The replicas that must have a batch before the answer. The numbers are those of the gRPC messages."""

    UNSPECIFIED = 0
    """Means ALL."""
    NONE = 1
    LEADER = 2
    ALL = 3


_ACKS_ALL = frozenset[int]((Acks.UNSPECIFIED, Acks.ALL))
_KNOWN_ACKS = frozenset[int](Acks)


class PartitionBatch(Protocol):
    """The batch to append to one partition. A writable memoryview is modified in place and not copied."""

    @property
    def index(self) -> int:
        """The partition's index."""

    @property
    def records(self) -> bytes | memoryview:
        """The batch."""


class TopicBatches(Protocol):
    """The batches to append to one topic."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def partitions(self) -> Iterable[PartitionBatch]:
        """Its batches."""


class ProduceBatches(Protocol):
    """A request. ``acks`` is one of the numbers of :class:`Acks`."""

    @property
    def acks(self) -> int:
        """The number of replicas that must have the batches before the answer."""

    @property
    def timeout_ms(self) -> int:
        """The maximum wait for them."""

    @property
    def transactional_id(self) -> str:
        """The transactional id of the producer, empty if it has none."""

    @property
    def transaction_version(self) -> int:
        """The ``transaction.version`` of the producer. From 2 on, the request adds its partitions (KIP-890)."""

    @property
    def topics(self) -> Iterable[TopicBatches]:
        """The batches to append."""


class PartitionOutcome:
    """The result of one batch. ``leader`` is set if the error is that this node does not lead (KIP-951).

    With an error, the offsets are set if the batch was appended but is not known to be replicated, and -1 otherwise.
    """

    __slots__ = ("base_offset", "error", "index", "leader", "log_append_time_ms", "log_start_offset")

    def __init__(self, index: int, error: TidelogError | None = None) -> None:
        self.index = index
        self.error = error
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_APPEND_TIME
        self.log_start_offset = NO_OFFSET
        self.leader: CurrentLeader | None = None

    @property
    def error_code(self) -> int:
        """Kafka's error code, 0 for success."""
        return 0 if self.error is None else self.error.code.code

    @property
    def error_message(self) -> str | None:
        """The error text, None for success."""
        return None if self.error is None else self.error.message

    @property
    def record_errors(self) -> tuple[RecordError, ...]:
        """The records for which the batch is refused, if known."""
        return self.error.records if isinstance(self.error, RefusedRecordsError) else ()


class TopicOutcome:
    """The results of the batches of one topic, in the order of the request.

    ``topic_id`` is for a listener whose requests name topics by id.
    """

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, partitions: list[PartitionOutcome]) -> None:
        self.name = name
        self.topic_id = b""
        self.partitions = partitions


class _Waiting:
    """A batch that is appended here and must reach the other replicas."""

    __slots__ = ("outcome", "partition", "replicated", "required_offset")

    def __init__(self, outcome: PartitionOutcome, partition: Partition, required_offset: int) -> None:
        self.outcome = outcome
        self.partition = partition
        self.required_offset = required_offset
        self.replicated = partition.replicated(required_offset)


class PendingProduce:
    """A request with appended batches, on the loop that appended them. :meth:`completion` may be called once.

    ``outcomes`` are final if ``is_complete``, otherwise at the completion.
    """

    __slots__ = ("_complete", "_context", "_has_failed", "_timeout_ms", "_timer", "_unfinished", "_waiting", "outcomes")

    def __init__(self, context: NodeContext, timeout_ms: int) -> None:
        self.outcomes: list[TopicOutcome] = []
        self._context = context
        self._timeout_ms = timeout_ms
        self._waiting: list[_Waiting] = []
        self._unfinished = 0
        self._has_failed = False
        self._complete: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_complete(self) -> bool:
        """True if there is nothing to wait for."""
        return not self._waiting

    def completion(self, answer: Callable[[list[TopicOutcome]], T]) -> Pending[T]:
        """Return a Pending that settles with the result of ``answer`` for the outcomes.

        It settles when every partition has its outcome, at the latest after ``timeout_ms``. Cancelling it ends the
        waits; appended batches stay.
        """
        completed: Pending[T] = Pending(self.abandon)

        def complete() -> None:
            if completed.is_settled:
                return
            self._finish()
            try:
                value = answer(self.outcomes)
            except Exception as error:  # noqa: BLE001  # who waits hears of it; else nobody would
                completed.fail(error)
            else:
                completed.settle(value)

        self._unfinished = len(self._waiting)
        if not self._waiting:
            complete()
            return completed
        self._complete = complete
        self._timer = asyncio.get_running_loop().call_later(max(0, self._timeout_ms) / 1000, complete)
        for waiting in list(self._waiting):
            waiting.replicated.then(self._count)
        return completed

    def abandon(self) -> None:
        """Stop waiting. Appended batches stay. Do nothing if the outcomes are final."""
        for waiting in self._end_wait():
            waiting.replicated.cancel()

    def append(
        self, request: ProduceBatches, checks: Checks, guards: Mapping[int, int] | None = None
    ) -> Generator[None, None, None]:
        """Append the request's batches, one per step; errors go into the outcomes.

        ``guards`` are those of batches that begin transactions, by position.
        """
        acks, place = request.acks, -1
        for topic in request.topics:
            name = topic.name
            outcomes: list[PartitionOutcome] = []
            self.outcomes.append(TopicOutcome(name, outcomes))
            for item in topic.partitions:
                outcome = PartitionOutcome(item.index)
                outcomes.append(outcome)
                place += 1
                guard = guards.get(place, NO_GUARD) if guards else NO_GUARD
                batch = checks.get(place) or item.records
                try:
                    self._append_one(acks, name, batch, outcome, guard)
                except Exception as error:  # noqa: BLE001  # into the outcome
                    # An error in one partition never stops the appends to the others.
                    self._take_error(outcome, name, error)
                yield

    def refuse_single(self, partition: Partition, info: AppendInfo | None, error: Exception) -> None:
        """Take the error of the only batch of a request, and its offsets if it was appended."""
        outcome = PartitionOutcome(partition.index)
        self.outcomes.append(TopicOutcome(partition.topic, [outcome]))
        if info is not None:
            self._note(outcome, partition, info)
        self._take_error(outcome, partition.topic, error)

    def append_single(self, partition: Partition, batch: memoryview, *, needs_all_replicas: bool) -> None:
        """Append the only batch of a request, which nothing delays. An error goes into its outcome."""
        outcome = PartitionOutcome(partition.index)
        self.outcomes.append(TopicOutcome(partition.topic, [outcome]))
        try:
            self._append_to(partition, batch, outcome, NO_GUARD, needs_all_replicas=needs_all_replicas)
        except Exception as error:  # noqa: BLE001  # into the outcome
            self._take_error(outcome, partition.topic, error)

    def _append_one(
        self,
        acks: int,
        topic: str,
        batch: bytes | memoryview | CheckedBatch | TidelogError,
        outcome: PartitionOutcome,
        guard: int,
    ) -> None:
        if acks not in _KNOWN_ACKS:
            raise error_for(ErrorCode.INVALID_REQUIRED_ACKS, f"acks has the unknown value {acks}")
        if topic in INTERNAL_TOPICS:
            # As in Kafka's ReplicaManager, only coordinators write to internal topics.
            raise error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no client writes to the internal topic {topic}")
        partition = self._context.partition(topic, outcome.index)
        if isinstance(batch, TidelogError):
            raise batch
        self._append_to(partition, batch, outcome, guard, needs_all_replicas=acks in _ACKS_ALL)

    def _append_to(
        self,
        partition: Partition,
        batch: bytes | memoryview | CheckedBatch,
        outcome: PartitionOutcome,
        guard: int,
        *,
        needs_all_replicas: bool,
    ) -> None:
        info = partition.append(batch, needs_all_replicas, guard)
        self._note(outcome, partition, info)
        if needs_all_replicas and not partition.is_replicated(info.last_offset + 1):
            self._waiting.append(_Waiting(outcome, partition, info.last_offset + 1))

    def _note(self, outcome: PartitionOutcome, partition: Partition, info: AppendInfo) -> None:
        # These values stay if the batch turns out not to be replicated (Kafka's DelayedProduce).
        outcome.base_offset = info.first_offset
        outcome.log_append_time_ms = info.log_append_time_ms
        outcome.log_start_offset = partition.log.log_start_offset

    def _count(self, replicated: Pending[None]) -> None:
        self._unfinished -= 1
        self._has_failed = self._has_failed or replicated.error is not None
        complete = self._complete
        if self._unfinished or complete is None:
            return
        if self._has_failed:
            # This runs during a change of the metadata, and the answer must reflect the whole change.
            asyncio.get_running_loop().call_soon(complete)
        else:
            complete()

    def _finish(self) -> None:
        for waiting in self._end_wait():
            replicated = waiting.replicated
            if replicated.cancel():
                error: BaseException | None = waiting.partition.timed_out(waiting.required_offset, self._timeout_ms)
            else:
                error = replicated.error
            if isinstance(error, TidelogError):
                self._fail(waiting.outcome, waiting.partition.topic, error)

    def _end_wait(self) -> list[_Waiting]:
        """Return the batches that were waited for, and clear all references to this object."""
        waited, self._waiting = self._waiting, []
        self._complete = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waited

    def _take_error(self, outcome: PartitionOutcome, topic: str, error: Exception) -> None:
        if not isinstance(error, TidelogError):
            text = "Appending to %s-%d failed with an unexpected error"
            error = report_unexpected(logger, error, text, topic, outcome.index)
        self._fail(outcome, topic, error)

    def _fail(self, outcome: PartitionOutcome, topic: str, error: TidelogError) -> None:
        # The traceback refers to frames with the outcome, so the records would stay until a garbage collection.
        outcome.error = error.detached()
        outcome.leader = leader_hint(self._context, error, topic, outcome.index)


def try_begin_produce(context: NodeContext, request: ProduceBatches) -> PendingProduce | None:
    """Append the request's batches at once on the calling loop, or return None if a batch must wait.

    A batch may wait for its partition's folder, for the decompressing thread, for others after many bytes, or for the
    coordinator of its transaction. Nothing is appended then; call :func:`begin_produce`.
    """
    survey = survey_request(context, request)
    checks = check_inline(context, survey) if survey.can_append else None
    if checks is None:
        return None
    if request.transactional_id and _must_verify(context, request):
        return None
    pending = PendingProduce(context, request.timeout_ms)
    for _ in pending.append(request, checks):
        pass
    return pending


def try_begin_single(
    context: NodeContext, topic: str, index: int, batch: memoryview, acks: int, timeout_ms: int
) -> PendingProduce | None:
    """Append the only batch of a request at once, or return None if :func:`try_begin_produce` must decide.

    The batch is small, uncompressed and outside of transactions. The outcome is the same as there.
    """
    partition = partition_of_single(context, topic, index)
    if partition is None:
        return None
    pending = PendingProduce(context, timeout_ms)
    pending.append_single(partition, batch, needs_all_replicas=acks in _ACKS_ALL)
    return pending


def partition_of_single(context: NodeContext, topic: str, index: int) -> Partition | None:
    """Return the partition for :func:`try_begin_single`, or None if :func:`try_begin_produce` must decide."""
    partition = context.partitions.get(topic, index)
    if partition is None or topic in INTERNAL_TOPICS or not context.produce_turns.is_free(partition):
        return None
    log = partition.log
    return partition if log.has_folder and not log.produce_rules.compresses else None


def single_outcome(
    context: NodeContext, partition: Partition, info: AppendInfo | None, error: Exception
) -> PendingProduce:
    """Return the complete request of one batch that has an error; ``info`` is None if nothing was appended."""
    pending = PendingProduce(context, 0)
    pending.refuse_single(partition, info, error)
    return pending


async def begin_produce(
    context: NodeContext, request: ProduceBatches, turn: ProduceTurn | None = None
) -> PendingProduce:
    """Append the request's batches on the calling loop, and return the pending request.

    It pauses only if a new partition has no folder, a batch is decompressed in a thread, one step of the loop cannot
    append everything, or a batch begins a transaction. Requests of one client that begin concurrently keep their order
    by the ``turn`` that :func:`take_turn` gave each; the caller ends it.
    """
    if turn is None and (pending := try_begin_produce(context, request)) is not None:
        return pending
    own = turn or take_turn(context, request)
    try:
        if not request.transactional_id:
            return await _begin_later(context, request, own, Verified())
        await own.wait()
        verified = await verify(context, request)
        own, before = _turn_of_partitions(context, request), own
        # The next request of this producer waits for the partitions now.
        before.end()
        return await _begin_later(context, request, own, verified)
    finally:
        own.end()


def take_turn(context: NodeContext, request: ProduceBatches) -> ProduceTurn:
    """Return a turn behind the requests of the same transactional producer, or those for the same partitions.

    While a transaction is verified, the requests of other producers for the same partitions go on.
    """
    if request.transactional_id:
        return context.transaction_turns.take([request.transactional_id])
    return _turn_of_partitions(context, request)


def refuse_produce(topics: Iterable[TopicBatches], error: TidelogError) -> list[TopicOutcome]:
    """Return the outcomes of a request for these batches that is refused as a whole."""
    return [
        TopicOutcome(topic.name, [PartitionOutcome(item.index, error) for item in topic.partitions]) for topic in topics
    ]


def _must_verify(context: NodeContext, request: ProduceBatches) -> bool:
    return not context.transaction_turns.is_free(request.transactional_id) or needs_verification(context, request)


async def _begin_later(
    context: NodeContext, request: ProduceBatches, turn: ProduceTurn, verified: Verified
) -> PendingProduce:
    checks = await check_in_thread(context, survey_request(context, request))
    checks.update(verified.errors)
    await turn.wait()
    # Appends report disk errors.
    await create_folders(_held(context, request))
    pending = PendingProduce(context, request.timeout_ms)
    try:
        await TimeSlices().result_of(pending.append(request, checks, verified.guards))
    except asyncio.CancelledError:
        pending.abandon()
        raise
    return pending


def _turn_of_partitions(context: NodeContext, request: ProduceBatches) -> Turn[Partition]:
    return context.produce_turns.take(_held(context, request))


def _held(context: NodeContext, request: ProduceBatches) -> Iterator[Partition]:
    for topic in request.topics:
        for item in topic.partitions:
            partition = context.partitions.get(topic.name, item.index)
            if partition is not None:
                yield partition
