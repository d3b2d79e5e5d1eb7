"""One partition on three nodes with the node's real producer states, and one producer's core: both ends of idempotence.

A request may be lost, may remain in the network after its sender has given it up, and may overtake others; so may an
answer. Leaders change at any time. The old leader may continue to believe that it leads, and its later appends are cut
off. Committed records stay, since only a node that has all of them is elected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.events import (
    AskMetadata,
    AskProducerId,
    BatchAcknowledged,
    BatchFailed,
    Command,
    ProducerIdLearned,
    Send,
    Settle,
    TopicLearned,
)
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.partition_queue import REFUSALS
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchHeader, parse_header, read_records
from tidelog_node.log.producers.state import ProducerState

TOPIC = "t"
EXPIRATION_MS = 86_400_000
LIMITS = AccumulatorLimits(
    linger_ms=1,
    batch_size=100_000,
    batch_num_messages=3,
    max_messages=100_000,
    max_bytes=10_000_000,
    message_max_bytes=10_000,
    message_timeout_ms=2_000,
    propagation_max_ms=300,
    retries=1_000_000,
    overdue_ms=100,
    idempotent=True,
)


class Stored(NamedTuple):
    """A batch in a log."""

    header: RecordBatchHeader
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A batch in transit to a node."""

    node: int
    batch_id: int
    attempt: int
    data: bytes


@dataclass(slots=True)
class Replica:
    """A node's log. ``epoch`` is the one in which it believes that it leads, -1 for a follower."""

    log: list[Stored] = field(default_factory=list)
    states: ProducerState = field(default_factory=lambda: ProducerState(EXPIRATION_MS))
    epoch: int = -1
    waiting: list[tuple[int, int, Attempt]] = field(default_factory=list)
    """The end offset to be committed, the base offset, and the waiting request."""

    @property
    def end(self) -> int:
        return self.log[-1].header.last_offset + 1 if self.log else 0

    def append(self, stored: Stored) -> None:
        self.log.append(stored)
        self.states.append(stored.header, None, 0)

    def copy(self, leader: Replica, batches: int) -> None:
        """Fetch like a follower: cut the part that the leader lacks, copy up to ``batches`` more, and update the
        states.
        """
        same = 0
        while same < min(len(self.log), len(leader.log)) and self.log[same] == leader.log[same]:
            same += 1
        wanted = leader.log[: max(same, min(len(self.log), same) + batches)]
        if same < len(self.log):
            self.log, self.states = [], ProducerState(EXPIRATION_MS)
        for stored in wanted[len(self.log) :]:
            self.append(stored)


class ProducerCluster:
    """The environment of one producer. Each method is one event with its immediate consequences."""

    def __init__(self, limits: AccumulatorLimits = LIMITS) -> None:
        self.now_ms = 0.0
        self.accumulator = Accumulator(limits, lambda attempt: 10.0, lambda n: 0)
        self.replicas = [Replica() for _ in range(3)]
        self.epoch = 0
        self.leader = 0
        self.replicas[0].epoch = 0
        self.committed = 0
        self.known_leader = 0
        self.network: list[Attempt] = []
        self.answers: list[BatchAcknowledged | BatchFailed] = []
        self.awaited: list[tuple[int, int]] = []
        self.produced = 0
        self.settled: dict[int, Settle] = {}
        self.offsets: dict[int, int] = {}
        self.numbers: set[tuple[int, int]] = set()
        self._ids = 7
        self._do(self.accumulator.handle(TopicLearned(TOPIC, 1, (0,)), 0))

    def produce(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self.produced
            self.produced += 1
            self.accumulator.append(TOPIC, 0, None, value, (), 1, print, self.now_ms)

    def poll(self, elapsed_ms: float) -> None:
        self.now_ms += elapsed_ms
        self._do(self.accumulator.poll(self.now_ms, lambda topic, partition: self.known_leader))

    def deliver(self, position: int, refusal: ErrorCode | None = None) -> None:
        """Deliver a request to a node, which may refuse it for ``refusal`` before it checks the sequence."""
        attempt = self.network.pop(position)
        node = self.replicas[attempt.node]
        if node.epoch < 0:
            self._answer(attempt, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "follows"))
            return
        try:
            if refusal is not None:
                raise error_for(refusal, "refused")
            header = parse_header(attempt.data)
            duplicate = node.states.check(header)
        except TidelogError as error:
            self._answer(attempt, error)
            return
        base_offset = node.end if duplicate is None else duplicate.base_offset
        if duplicate is None:
            values = tuple(int(record.value or b"") for record in read_records(attempt.data))
            node.append(Stored(header._replace(base_offset=base_offset), values))
        node.waiting.append((base_offset + header.last_offset_delta + 1, base_offset, attempt))
        self._complete()

    def lose_request(self, position: int) -> None:
        self.network.pop(position)

    def replicate(self, follower: int, batches: int) -> None:
        """Let a follower of the true leader fetch."""
        if follower != self.leader:
            self.step_down(follower)
            self.replicas[follower].copy(self.replicas[self.leader], batches)

    def commit(self) -> None:
        """Let all followers fetch to the end."""
        for follower in range(3):
            self.replicate(follower, 1_000_000)
        self.committed = max(self.committed, self.replicas[self.leader].end)
        self._complete()

    def elect(self, node: int) -> None:
        """Elect a node that has all committed records. The old leader does not know yet."""
        if node == self.leader or self.replicas[node].end < self.committed:
            return
        replica = self.replicas[node]
        self.step_down(node)
        self.epoch += 1
        self.leader, replica.epoch = node, self.epoch

    def step_down(self, node: int) -> None:
        """Let a former leader learn that it no longer leads."""
        replica = self.replicas[node]
        if node == self.leader or replica.epoch < 0:
            return
        replica.epoch = -1
        waiting, replica.waiting = replica.waiting, []
        for _, _, attempt in waiting:
            self._answer(attempt, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leads no more"))

    def refresh(self) -> None:
        """Let the producer learn the leader."""
        self.known_leader = self.leader

    def answer(self, position: int) -> None:
        """Deliver an answer to the producer."""
        event = self.answers.pop(position)
        self._told(event)

    def lose_answer(self, position: int) -> None:
        self.answers.pop(position)

    def break_connection(self, count: int) -> None:
        """Let the producer give up waiting requests. Sent ones may still arrive."""
        for batch_id, attempt in self.awaited[:count]:
            self._told(BatchFailed(batch_id, attempt, error_for(ErrorCode._TRANSPORT, "gone")))

    def purge(self, in_queue: bool, in_flight: bool) -> None:
        self._do(self.accumulator.purge(in_queue=in_queue, in_flight=in_flight))

    def settle_all(self) -> None:
        """Heal everything: every produced record is reported, and every sent request arrives."""
        self.accumulator.flushing = 1
        for _ in range(10_000):
            self.refresh()
            self.commit()
            self.poll(5)
            while self.network:
                self.deliver(0)
            self.commit()
            while self.answers:
                self.answer(0)
            self.break_connection(100)
            if not self.accumulator.count and not self.network:
                break
        assert not self.accumulator.count, "not every record was settled"
        self.check()

    def check(self) -> None:
        """Assert the guarantees."""
        self.accumulator.check_invariants()
        for replica in self.replicas:
            replica.states.check_invariants()
        stored = [v for s in self._committed_batches() for v in s.values]
        assert stored == sorted(set(stored)), f"twice or out of order: {stored}"
        offsets = {v: s.header.base_offset + n for s in self._committed_batches() for n, v in enumerate(s.values)}
        for value, settle in self.settled.items():
            if settle.error is None:
                assert value in offsets, f"{value} was acknowledged and is not there"
                assert self.offsets[value] in (offsets[value], -1), (value, self.offsets[value], offsets[value])
            elif not settle.may_be_stored:
                assert value not in offsets, f"{value} was given up ({settle.error}) and is there"

    def _committed_batches(self) -> Sequence[Stored]:
        return [s for s in self.replicas[self.leader].log if s.header.last_offset < self.committed]

    def _complete(self) -> None:
        leader = self.replicas[self.leader]
        done = [w for w in leader.waiting if w[0] <= self.committed]
        leader.waiting = [w for w in leader.waiting if w[0] > self.committed]
        for _, base_offset, attempt in done:
            self.answers.append(BatchAcknowledged(attempt.batch_id, attempt.attempt, base_offset))

    def _answer(self, attempt: Attempt, error: TidelogError) -> None:
        is_refused = error.code in REFUSALS
        self.answers.append(BatchFailed(attempt.batch_id, attempt.attempt, error, is_refused=is_refused))

    def _told(self, event: BatchAcknowledged | BatchFailed) -> None:
        key = (event.batch_id, event.attempt)
        self.awaited = [waiting for waiting in self.awaited if waiting != key]
        self._do(self.accumulator.handle(event, self.now_ms))

    def _do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Send():
                    self._send(command)
                case Settle():
                    self._settle(command)
                case AskProducerId():
                    self._ids += 1
                    self._do(self.accumulator.handle(ProducerIdLearned(self._ids, 0), self.now_ms))
                case AskMetadata():
                    pass

    def _send(self, send: Send) -> None:
        for batch, attempt, number in zip(send.batches, send.attempts, send.numbers, strict=True):
            assert batch.number == number
            self.network.append(Attempt(send.node_id, batch.batch_id, attempt, batch.encode(number)))
            self.awaited.append((batch.batch_id, attempt))
            self.numbers.add((number.producer_id, number.epoch))

    def _settle(self, settle: Settle) -> None:
        for delivery in settle.deliveries:
            value = int(delivery.value or b"")
            assert value not in self.settled, f"{value} was settled twice"
            self.settled[value] = settle
            known = settle.base_offset >= 0
            self.offsets[value] = settle.base_offset + delivery.relative_offset if known else -1
        self.accumulator.unserved -= len(settle.deliveries)
