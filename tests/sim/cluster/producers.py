"""A simulated producer: the product's ``Accumulator``, and a shell that does what ``Sender`` does.

What is batched, numbered, sent, sent again and given up is the product's. That nothing is lost, doubled or reordered by
it and the brokers together is what the checker watches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from random_numbers import mix
from sim.cluster.clients import ClientProcess, backoff_ms, no_answer
from sim.cluster.serving import Key, Produce, Produced
from sim.cluster.world import World

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import Batch
from tidelog.producer.core.events import (
    AskMetadata,
    AskProducerId,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Event,
    ProducerIdLearned,
    Send,
    Settle,
    TopicLearned,
)
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.numbering import ProducerNumber
from tidelog.producer.core.partition_queue import REFUSALS
from tidelog_foundation.records import parse_header, read_records

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

_REQUEST_TIMEOUT_MS = 300
_NODE_TIMEOUT_MS = 200
_ID_TIMEOUT_MS = 1_000


@dataclass(frozen=True, slots=True)
class Load:
    """A producer's work: ``total`` times up to three records for one partition, one every ``every_ms``.

    With ``acks`` other than -1 it is not idempotent. It gives up records after ``timeout_ms``.
    """

    total: int
    every_ms: int
    max_in_flight: int
    acks: int
    timeout_ms: int

    def limits(self) -> AccumulatorLimits:
        """Return the settings of its core."""
        return AccumulatorLimits(
            linger_ms=self.every_ms % 4,
            batch_size=1_000,
            batch_num_messages=3,
            max_messages=100_000,
            max_bytes=10_000_000,
            message_max_bytes=10_000,
            message_timeout_ms=self.timeout_ms,
            propagation_max_ms=1_000,
            retries=1_000_000 if self.acks == -1 else 2,
            idempotent=self.acks == -1,
            max_in_flight=self.max_in_flight,
            overdue_ms=120,
        )


class Producer(ClientProcess):
    """Produces to partitions in turn; a record's value is the producer's number and how many it made before."""

    def __init__(
        self,
        world: World,
        number: int,
        clock: tuple[int, int],
        checker: Checker,
        nodes: list[int],
        keys: list[Key],
        load: Load,
    ) -> None:
        super().__init__(world, number, clock, checker, nodes)
        self._keys = keys
        self._load = load
        self._left = load.total
        self._turns = self._serial = self._step_number = 0
        self._is_asking_for_id = False
        self._accumulator = Accumulator(load.limits(), backoff_ms, lambda n: mix(number, self._turns) % n)
        self.soon(self.refresh)
        self.after(load.every_ms, self._produce)

    @property
    def is_done(self) -> bool:
        """Return whether everything is sent and has its outcome."""
        return not self._left and not self._accumulator.count

    def describe(self) -> str:
        """Say what has not."""
        return f"producer {self.number}: {self._left} to make, {self._accumulator.count} not settled"

    def learned(self) -> None:
        events: list[Event] = []
        for topic in dict.fromkeys(topic for topic, _ in self.leaders):
            indexes = [index for name, index in self.leaders if name == topic]
            available = tuple(index for index in indexes if self.leader_of((topic, index)) is not None)
            events.append(TopicLearned(topic, len(indexes), available))
        self._handle(events)

    def _produce(self) -> None:
        if not self._left:
            return
        self._left -= 1
        self._turns += 1
        topic, index = self._keys[self._turns % len(self._keys)]
        for _ in range(1 + mix(self.number, self._turns) % 3):
            self._serial += 1
            value = b"%d.%d" % (self.number, self._serial)
            now_ms = self.monotonic_ms()
            self._accumulator.append(topic, index, b"k", value, (), self.wall_ms(), _reported, now_ms)
        self._wake()
        self.after(self._load.every_ms, self._produce)

    def _wake(self) -> None:
        self._step_number += 1
        self.soon(self._step, self._step_number)

    def _step(self, number: int) -> None:
        """Look at the accumulator; ``number`` tells a timer that is not the last one."""
        if number != self._step_number:
            return
        now_ms = self.monotonic_ms()
        self._execute(self._accumulator.poll(now_ms, self._leader_id_of))
        self._accumulator.check_invariants()
        timer_ms = self._accumulator.next_timer_ms(now_ms)
        if timer_ms is not None:
            self.after(max(1, timer_ms - now_ms), self._step, number)

    def _leader_id_of(self, topic: str, index: int) -> int | None:
        leader = self.leader_of((topic, index))
        return None if leader is None else leader[0]

    def _handle(self, events: Iterable[Event]) -> None:
        now_ms = self.monotonic_ms()
        self._execute([c for event in events for c in self._accumulator.handle(event, now_ms)])
        self._wake()

    def _execute(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Send():
                    for batch, attempt, number in zip(command.batches, command.attempts, command.numbers, strict=True):
                        self._send(command.node_id, batch, attempt, number)
                case Settle():
                    self._settle(command)
                case AskMetadata():
                    self.refresh()
                case AskProducerId():
                    self._ask_for_id()

    def _send(self, node_id: int, batch: Batch, attempt: int, number: ProducerNumber) -> None:
        key, data, batch_id = (batch.topic, batch.partition), batch.encode(number), batch.batch_id
        serials = tuple(_serial(record.value) for record in read_records(data))
        self.checker.clients.note_sent(key, number[:3], parse_header(data).crc, self.number, serials)

        def take(answer: Any) -> None:
            if isinstance(answer, Produced):
                self._handle([BatchAcknowledged(batch_id, attempt, answer.first_offset)])
                return
            error = no_answer(node_id) if answer is None else answer
            is_refused = error.code in REFUSALS
            self._handle([BatchFailed(batch_id, attempt, error, is_refused=is_refused)])

        request = Produce(key, data, self._load.acks, _NODE_TIMEOUT_MS)
        if self._load.acks == 0:
            self.call(self.world.processes[node_id], "produce", request, lambda _: None, _REQUEST_TIMEOUT_MS)
            self.soon(self._handle, [BatchAcknowledged(batch_id, attempt, -1)])
        else:
            self.call(self.world.processes[node_id], "produce", request, take, _REQUEST_TIMEOUT_MS)

    def _settle(self, settle: Settle) -> None:
        self._accumulator.unserved -= len(settle.deliveries)
        if self._load.acks != -1:
            return
        key = settle.topic, settle.partition
        serials = tuple(_serial(delivery.value) for delivery in settle.deliveries)
        if settle.error is None:
            self.checker.clients.check_acknowledged(key, self.number, serials, settle.base_offset)
        else:
            self.checker.clients.check_given_up(
                key, self.number, serials, settle.error, may_be_stored=settle.may_be_stored
            )

    def _ask_for_id(self) -> None:
        if self._is_asking_for_id:
            return
        self._is_asking_for_id = True
        self._asked += 1
        node = self.world.processes[self._nodes[self._asked % len(self._nodes)]]
        self.call(node, "init_producer_id", None, self._take_id, _ID_TIMEOUT_MS)

    def _take_id(self, producer_id: int | None) -> None:
        self._is_asking_for_id = False
        if producer_id is None:
            self.after(backoff_ms(1), self._wake)
            return
        self.checker.clients.note_producer_id(producer_id)
        self._handle([ProducerIdLearned(producer_id, 0)])


def _serial(value: bytes | None) -> int:
    assert value is not None
    return int(value.partition(b".")[2])


def _reported(_error: Any, _message: Any) -> None:
    pass
