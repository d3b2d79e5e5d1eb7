"""A transactional producer's cores, the core of its coordinator, a model of partitions, and a network between them.

A request or its answer may be lost. A request may stay in the network after the client has given it up, and arrive
later or twice. The group's offsets are one more partition, and its coordinator a leader. Before transaction version 2,
no answered request to a coordinator arrives twice: nothing distinguishes it from the next transaction's (KAFKA-17754).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from transaction_shards import TransactionHarness

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.events import (
    AskMetadata,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Send,
    Settle,
    TopicLearned,
)
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.numbering import ProducerIdAndEpoch
from tidelog.producer.core.partition_queue import REFUSALS
from tidelog.producer.core.transaction_manager import TransactionManager
from tidelog.producer.core.transaction_operations import Operation, State
from tidelog.producer.core.transaction_requests import (
    AddGroup,
    AddPartitions,
    Answered,
    Ask,
    CommitOffsets,
    EndTransaction,
    InitProducer,
    PartitionErrors,
    ProducerGiven,
    Request,
    Unanswered,
)
from tidelog.producer.core.transaction_scope import IMPLICIT_VERSION
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import parse_header, read_records
from tidelog_node.transactions.calls import CONCURRENT_WAIT_MS
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionRequest,
    TransactionResponse,
)
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import NO_PRODUCER, Producer

ID = "payments"
TOPIC = "t"
PARTITIONS = 3
OFFSETS = ("__consumer_offsets", 0)
TIMEOUT_MS = 60_000
LIMITS = AccumulatorLimits(
    linger_ms=5,
    batch_size=10_000,
    batch_num_messages=2,
    max_messages=1_000,
    max_bytes=1_000_000,
    message_max_bytes=10_000,
    message_timeout_ms=2_000,
    propagation_max_ms=1_000,
    retries=1_000,
    idempotent=True,
    transactional=True,
)
_FAULTS = ("request", "answer", "late", "twice", "request", "answer", "late", "refused")
_REFUSED = error_for(ErrorCode.INVALID_RECORD, "refused")
_MOVED = error_for(ErrorCode.NOT_COORDINATOR, "moved")
_LOST = error_for(ErrorCode._TRANSPORT, "lost")


class Marker(NamedTuple):
    """The end of a transaction in a partition."""

    producer_id: int
    epoch: int
    committed: bool


class Data(NamedTuple):
    """A batch in a partition."""

    producer_id: int
    epoch: int
    base_sequence: int
    values: tuple[str, ...]


@dataclass
class Replica:
    """The leader's log of a partition. By producer id: epoch, next sequence, and the epoch of the open transaction."""

    log: list[Data | Marker] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    ongoing: dict[int, int] = field(default_factory=dict)

    def visible(self) -> list[str]:
        """Return the committed values in order (read_committed)."""
        ends: list[tuple[int, Data]] = [(i, e) for i, e in enumerate(self.log) if isinstance(e, Data)]
        return [value for i, data in ends if self._is_committed(i, data) for value in data.values]

    def hanging(self) -> list[Data]:
        """Return the batches without a marker."""
        return [e for i, e in enumerate(self.log) if isinstance(e, Data) and self._end_of(i, e) is None]

    def mark(self, marker: Marker) -> None:
        if marker.epoch < self.epochs.get(marker.producer_id, -1):
            return
        if marker.epoch > self.epochs.get(marker.producer_id, -1):
            self.epochs[marker.producer_id], self.sequences[marker.producer_id] = marker.epoch, 0
        self.ongoing.pop(marker.producer_id, None)
        self.log.append(marker)

    def check(self, data: Data) -> bool:
        """Return whether a batch is new, False for a repeated one. Raise as a leader does."""
        known = self.epochs.get(data.producer_id, -1)
        if data.epoch < known:
            raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH, f"{data} is below epoch {known}")
        if data in self.log:
            return False
        expected = self.sequences.get(data.producer_id, 0) if data.epoch == known else 0
        if data.base_sequence != expected:
            raise error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{data} does not follow {expected}")
        return True

    def append(self, data: Data) -> None:
        self.epochs[data.producer_id] = data.epoch
        self.sequences[data.producer_id] = data.base_sequence + len(data.values)
        self.ongoing[data.producer_id] = data.epoch
        self.log.append(data)

    def _end_of(self, index: int, data: Data) -> Marker | None:
        later = (e for e in self.log[index:] if isinstance(e, Marker) and e.producer_id == data.producer_id)
        return next(later, None)

    def _is_committed(self, index: int, data: Data) -> bool:
        end = self._end_of(index, data)
        return end is not None and end.committed


class Server:
    """The coordinator and the partitions. ``version`` is the finalized ``transaction.version``."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.coordinator = TransactionHarness(TransactionSettings(version=version, two_phase_commit_enable=True))
        self.partitions = {(TOPIC, index): Replica() for index in range(PARTITIONS)} | {OFFSETS: Replica()}

    def ask(self, request: TransactionRequest) -> TransactionResponse:
        """Return the coordinator's answer. No markers are written meanwhile."""
        harness = self.coordinator
        call_id = harness.call(request)
        for _ in range(3):
            harness.commit()
            harness.allocate()
        if call_id not in harness.answers:
            harness.pass_time(CONCURRENT_WAIT_MS + 1)
            harness.commit()
        return harness.answers[call_id]

    def write_markers(self) -> None:
        """Write the markers of the oldest ended transaction."""
        harness = self.coordinator
        if harness.markers:
            markers = harness.markers[0]
            marker = Marker(markers.producer.id, markers.producer.epoch, markers.committed)
            for partition in sorted(markers.partitions):
                self.partitions[partition].mark(marker)
            harness.mark()
            harness.commit()

    def settle(self) -> None:
        """Write all markers."""
        while self.coordinator.markers:
            self.write_markers()
        self.coordinator.settle()

    def time_out(self) -> None:
        """Let the coordinator abort the open transaction, because it has been open for too long."""
        self.coordinator.pass_time(TIMEOUT_MS + self.coordinator.settings.abort_timed_out_interval_ms)
        self.coordinator.commit()
        self.settle()

    def execute(self, request: Request) -> ProducerGiven | PartitionErrors:
        """Execute a client's request. Raise its error."""
        match request:
            case InitProducer():
                producer = NO_PRODUCER if request.producer is None else Producer(*request.producer)
                asked = InitProducerIdRequest(ID, TIMEOUT_MS, producer, keep_prepared=request.keep_prepared)
                given = self.ask(asked)
                assert isinstance(given, InitProducerIdResponse)
                _raise(given.error)
                kept = None if given.ongoing == NO_PRODUCER else ProducerIdAndEpoch(*given.ongoing)
                return ProducerGiven(ProducerIdAndEpoch(*given.producer), self.version, kept)
            case AddPartitions():
                return self._add(request.producer, tuple(request.partitions))
            case AddGroup():
                return self._add(request.producer, (OFFSETS,))
            case CommitOffsets():
                values = tuple(offset.metadata for offset in request.offsets)
                self._append(OFFSETS, Data(*request.producer, -1, values), request.version)
                return PartitionErrors({})
            case EndTransaction():
                ended = self.ask(EndTxnRequest(ID, Producer(*request.producer), request.committed, request.version))
                assert isinstance(ended, EndTxnResponse)
                _raise(ended.error)
                return ProducerGiven(ProducerIdAndEpoch(*ended.producer), self.version)

    def produce(self, partition: tuple[str, int], records: bytes, version: int) -> None:
        """Append a batch. Raise the leader's error."""
        header = parse_header(records)
        assert header.is_transactional
        values = tuple((record.value or b"").decode() for record in read_records(records))
        self._append(partition, Data(header.producer_id, header.producer_epoch, header.base_sequence, values), version)

    def _append(self, partition: tuple[str, int], data: Data, version: int) -> None:
        replica = self.partitions[partition]
        has_sequence = data.base_sequence >= 0
        if has_sequence and not replica.check(data):
            return
        if replica.ongoing.get(data.producer_id) != data.epoch:
            producer = Producer(data.producer_id, data.epoch)
            request = AddPartitionsRequest(ID, producer, (partition,), verify_only=version < 2, version=version)
            answer = self.ask(request)
            assert isinstance(answer, AddPartitionsResponse)
            _raise(answer.error)
            _raise((answer.errors or {}).get(partition))
        if has_sequence:
            replica.append(data)
        elif data.epoch < replica.epochs.get(data.producer_id, -1):
            raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH, f"{data} is fenced")
        else:
            replica.epochs[data.producer_id] = data.epoch
            replica.ongoing[data.producer_id] = data.epoch
            replica.log.append(data)

    def _add(self, producer: ProducerIdAndEpoch, partitions: tuple[tuple[str, int], ...]) -> PartitionErrors:
        answer = self.ask(AddPartitionsRequest(ID, Producer(*producer), partitions))
        assert isinstance(answer, AddPartitionsResponse)
        _raise(answer.error)
        return PartitionErrors(answer.errors or {})


@dataclass(frozen=True, slots=True)
class Attempt:
    """A batch on its way."""

    batch_id: int
    attempt: int
    partition: tuple[str, int]
    records: bytes
    version: int


class World:
    """One client and the server. ``faults`` is the share of the messages that something happens to."""

    def __init__(self, version: int, random: Random | None = None, faults: float = 0.0) -> None:
        self.server = Server(version)
        self.random = random or Random(0)
        self.faults = faults
        self.now_ms = 0.0
        self.late: list[Ask | Attempt] = []
        """Requests in the network that the client has given up."""
        self.settled: list[Settle] = []
        self.asked: list[Request] = []
        self.queue: list[Ask | Attempt] = []
        self.restart()

    def restart(self) -> None:
        """Replace the client by a new one. Its requests in the network may still arrive."""
        self.late += [message for message in self.queue if self.random.random() < 0.5]
        self.accumulator = Accumulator(LIMITS, lambda _: 10.0, lambda n: 0)
        self.manager = TransactionManager(self.accumulator, lambda _: 10.0)
        self.accumulator.handle(TopicLearned(TOPIC, PARTITIONS, tuple(range(PARTITIONS)), b"t" * 16), self.now_ms)
        self.queue: list[Ask | Attempt] = []

    def produce(self, partition: int, value: str) -> None:
        self.accumulator.append(TOPIC, partition, None, value.encode(), (), 0, None, self.now_ms)

    def step(self) -> None:
        """Let the client act, and deliver or lose one message."""
        self.now_ms += 5
        commands: list[Command | Ask] = [*self.accumulator.poll(self.now_ms, lambda *_: 1)]
        commands += self.manager.poll(self.now_ms)
        for command in commands:
            self._execute(command)
        self.accumulator.check_invariants()
        self.manager.check_invariants()
        if self.late and self.random.random() < 0.2:
            self._arrive(self.late.pop(self.random.randrange(len(self.late))))
        if self.random.random() < 0.3:
            self.server.write_markers()
        if self.queue:
            self._deliver(self.queue.pop(self.random.randrange(len(self.queue))))

    def run(self, operation: Operation, steps: int = 3_000) -> TidelogError | None:
        """Step until an operation is done, and return its error."""
        for _ in range(steps):
            if operation.is_done:
                self.manager.acknowledge(operation)
                return operation.error
            self.step()
        raise AssertionError(f"{operation} hangs in {self.manager.state}")

    def started(self) -> None:
        """Initialize the client, replacing fenced ones."""
        while True:
            error = self.run(self.manager.initialize())
            if error is None:
                return
            assert error.error.fatal()
            self.restart()

    def heal(self) -> None:
        """Deliver everything that is on its way."""
        self.faults = 0.0
        for message in [*self.late, *self.queue]:
            self._arrive(message)
        self.late, self.queue = [], []

    @property
    def is_fatal(self) -> bool:
        return self.manager.state is State.FATAL_ERROR

    def visible(self) -> list[str]:
        """Return the committed values of all partitions."""
        return [value for replica in self.server.partitions.values() for value in replica.visible()]

    def _execute(self, command: Command | Ask) -> None:
        match command:
            case Ask():
                self.asked.append(command.request)
                self.queue.append(command)
            case Send():
                encoded = [b.encode(n) for b, n in zip(command.batches, command.numbers, strict=True)]
                for batch, attempt, records in zip(command.batches, command.attempts, encoded, strict=True):
                    place = (batch.topic, batch.partition)
                    self.queue.append(Attempt(batch.batch_id, attempt, place, records, command.transaction_version))
            case Settle():
                self.settled.append(command)
            case AskMetadata():
                pass
            case _:
                raise AssertionError(command)

    def _deliver(self, message: Ask | Attempt) -> None:
        fault = self.random.choice(_FAULTS) if self._is_hit() else ""
        if fault == "refused":
            error = _REFUSED if isinstance(message, Attempt) else _MOVED
            self._fail(message, error, is_refused=True)
            return
        if fault == "late":
            self.late.append(message)
        if fault in ("request", "late"):
            self._fail(message, _LOST, is_refused=False)
            return
        if fault == "twice" and (isinstance(message, Attempt) or self.server.version >= IMPLICIT_VERSION):
            self.late.append(message)
        try:
            answer = self._arrive_or_raise(message)
        except TidelogError as error:
            self._fail(message, error if fault != "answer" else _LOST, is_refused=fault != "answer")
            return
        if fault == "answer":
            self._fail(message, _LOST, is_refused=False)
        elif isinstance(message, Ask):
            assert answer is not None
            self.manager.handle(Answered(message.request_id, answer), self.now_ms)
        else:
            commands = self.accumulator.handle(BatchAcknowledged(message.batch_id, message.attempt, 0), self.now_ms)
            self._note(commands)

    def _arrive(self, message: Ask | Attempt) -> None:
        with contextlib.suppress(TidelogError):
            self._arrive_or_raise(message)

    def _arrive_or_raise(self, message: Ask | Attempt) -> ProducerGiven | PartitionErrors | None:
        if isinstance(message, Ask):
            return self.server.execute(message.request)
        self.server.produce(message.partition, message.records, message.version)
        return None

    def _fail(self, message: Ask | Attempt, error: TidelogError, *, is_refused: bool) -> None:
        if isinstance(message, Ask):
            self.manager.handle(Unanswered(message.request_id, error), self.now_ms)
            return
        is_refused = is_refused and error.code in REFUSALS
        failed = BatchFailed(message.batch_id, message.attempt, error, is_refused=is_refused)
        self._note(self.accumulator.handle(failed, self.now_ms))

    def _note(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._execute(command)

    def _is_hit(self) -> bool:
        return self.random.random() < self.faults


def _raise(error: TidelogError | None) -> None:
    if error is not None:
        raise error
