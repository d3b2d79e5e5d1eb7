from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.batch import Batch
from tidelog.producer.core.events import (
    AskMetadata,
    BatchAcknowledged,
    BatchFailed,
    Command,
    Send,
    Settle,
    TopicLearned,
    TopicRefused,
)
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog_foundation.errors import ErrorCode, KafkaException, error_for
from tidelog_foundation.records import read_records

LIMITS = AccumulatorLimits(
    linger_ms=5,
    batch_size=100_000,
    batch_num_messages=10,
    max_messages=1_000,
    max_bytes=1_000_000,
    message_max_bytes=10_000,
    message_timeout_ms=1_000,
    propagation_max_ms=300,
    retries=1_000,
)
RETRIABLE = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
FATAL = error_for(ErrorCode.MESSAGE_TOO_LARGE, "too large")


def make(limits: AccumulatorLimits = LIMITS, partitions: int | None = 2) -> Accumulator:
    accumulator = Accumulator(limits, lambda attempt: 10.0, lambda n: 0)
    if partitions is not None:
        accumulator.handle(TopicLearned("t", partitions, range(partitions)), 0)
    return accumulator


def put(
    accumulator: Accumulator,
    value: bytes,
    partition: int = 0,
    now_ms: float = 0,
    report: Callable[..., Any] | None = None,
) -> bool:
    return accumulator.append("t", partition, None, value, (), 1, report, now_ms)


def leader(topic: str, partition: int) -> int | None:
    return 1


def sends(commands: list[Command]) -> list[Batch]:
    return [batch for c in commands if isinstance(c, Send) for batch in c.batches]


def values(batch: Batch) -> list[bytes | None]:
    return [record.value for record in read_records(batch.encode())]


def test_accumulator_sends_after_linger() -> None:
    accumulator = make()
    assert put(accumulator, b"a", now_ms=100)
    assert not put(accumulator, b"b", now_ms=102)
    assert accumulator.poll(104, leader) == []
    assert accumulator.next_timer_ms(104) == 105
    assert [values(b) for b in sends(accumulator.poll(105, leader))] == [[b"a", b"b"]]


def test_accumulator_sends_at_once_when_flushing() -> None:
    accumulator = make()
    put(accumulator, b"a")
    accumulator.flushing = 1
    assert len(sends(accumulator.poll(0, leader))) == 1


def test_accumulator_closes_a_batch_at_its_number_of_records() -> None:
    accumulator = make()
    for n in range(25):
        put(accumulator, b"%d" % n)
    [first] = sends(accumulator.poll(0, leader))
    assert first.count == 10
    assert sends(accumulator.poll(1000 - 1, leader)) == []
    accumulator.handle(BatchAcknowledged(first.batch_id, first.attempts, 0), 1)
    [second] = sends(accumulator.poll(1, leader))
    assert values(second) == [b"%d" % n for n in range(10, 20)]


def test_accumulator_closes_a_batch_before_it_exceeds_its_size() -> None:
    accumulator = make(replace(LIMITS, batch_size=1_000))
    for _ in range(5):
        put(accumulator, b"x" * 400)
    [first] = sends(accumulator.poll(0, leader))
    assert first.count == 2
    assert len(first.encode()) <= 1_000


def test_accumulator_takes_a_record_larger_than_a_batch_alone() -> None:
    accumulator = make(replace(LIMITS, batch_size=1_000))
    put(accumulator, b"x" * 5_000)
    put(accumulator, b"y")
    assert [b.count for b in sends(accumulator.poll(0, leader))] == [1]


def test_accumulator_pipelines_partitions_but_not_batches_of_one() -> None:
    accumulator = make(replace(LIMITS, batch_num_messages=1))
    for partition in (0, 0, 1):
        put(accumulator, b"v", partition)
    assert sorted(b.partition for b in sends(accumulator.poll(0, leader))) == [0, 1]
    assert sends(accumulator.poll(10, leader)) == []


def test_accumulator_retries_in_order_after_the_back_off() -> None:
    accumulator = make(replace(LIMITS, batch_num_messages=1))
    put(accumulator, b"a")
    put(accumulator, b"b")
    [first] = sends(accumulator.poll(0, leader))
    assert accumulator.handle(BatchFailed(first.batch_id, first.attempts, RETRIABLE), 5) == [
        AskMetadata(frozenset(["t"]))
    ]
    assert sends(accumulator.poll(14, leader)) == []
    assert accumulator.next_timer_ms(14) == 15
    assert sends(accumulator.poll(15, leader)) == [first]


@pytest.mark.parametrize(
    ("code", "asks"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
    ],
)
def test_accumulator_asks_who_leads_when_the_leader_may_be_another(code: ErrorCode, asks: bool) -> None:
    accumulator = make(replace(LIMITS, batch_num_messages=1))
    put(accumulator, b"a")
    [batch] = sends(accumulator.poll(0, leader))
    commands = accumulator.handle(BatchFailed(batch.batch_id, batch.attempts, error_for(code, "")), 5)
    assert commands == ([AskMetadata(frozenset(["t"]))] if asks else [])


def test_accumulator_retries_at_once_when_the_answer_named_the_leader() -> None:
    accumulator = make()
    put(accumulator, b"a")
    [batch] = sends(accumulator.poll(5, leader))
    assert accumulator.handle(BatchFailed(batch.batch_id, batch.attempts, RETRIABLE, leader_known=True), 6) == []
    assert sends(accumulator.poll(6, leader)) == [batch]


def test_accumulator_retries_at_once_when_another_node_leads_and_backs_off_from_the_same_one() -> None:
    """A client that sits out its back-off after a failure finds the new leader that much later (KIP-951)."""
    accumulator = make()
    put(accumulator, b"a")
    [batch] = sends(accumulator.poll(5, leader))
    accumulator.handle(BatchFailed(batch.batch_id, batch.attempts, RETRIABLE), 6)
    assert sends(accumulator.poll(7, leader)) == []
    assert sends(accumulator.poll(7, lambda t, p: None)) == []
    [send] = accumulator.poll(7, lambda t, p: 2)
    assert isinstance(send, Send)
    assert (send.node_id, send.batches) == (2, [batch])
    accumulator.handle(BatchFailed(batch.batch_id, batch.attempts, RETRIABLE), 8)
    assert sends(accumulator.poll(9, lambda t, p: 2)) == []
    assert sends(accumulator.poll(18, lambda t, p: 2)) == [batch]


@pytest.mark.parametrize(("error", "retries"), [(FATAL, 1_000), (RETRIABLE, 0)])
def test_accumulator_gives_up_on_a_final_error_and_when_retries_are_used_up(
    error: KafkaException, retries: int
) -> None:
    accumulator = make(replace(LIMITS, retries=retries))
    put(accumulator, b"a", report=print)
    [batch] = sends(accumulator.poll(5, leader))
    [settle] = accumulator.handle(BatchFailed(batch.batch_id, batch.attempts, error, is_refused=True), 6)
    assert isinstance(settle, Settle)
    assert (settle.count, settle.error, len(settle.deliveries)) == (1, error, 1)
    assert (accumulator.count, len(accumulator)) == (0, 1)


def test_accumulator_times_out_in_flight_and_ignores_the_late_answer() -> None:
    accumulator = make()
    put(accumulator, b"a")
    [batch] = sends(accumulator.poll(5, leader))
    [settle] = accumulator.poll(1_000, leader)
    assert isinstance(settle, Settle)
    assert settle.error is not None
    assert settle.error.code is ErrorCode._MSG_TIMED_OUT
    assert "t-0" in settle.error.message
    assert accumulator.handle(BatchAcknowledged(batch.batch_id, batch.attempts, 7), 1_001) == []


def test_accumulator_asks_for_the_leader_and_has_no_timer_but_the_timeout() -> None:
    accumulator = make()
    put(accumulator, b"a")
    assert accumulator.poll(5, lambda t, p: None) == [AskMetadata(frozenset(["t"]))]
    assert accumulator.next_timer_ms(5) == 1_000


def test_accumulator_refuses_more_than_the_queue_holds_until_reports_are_served() -> None:
    accumulator = make(replace(LIMITS, max_messages=1))
    put(accumulator, b"a", report=print)
    with pytest.raises(BufferError, match="_QUEUE_FULL"):
        put(accumulator, b"b")
    [batch] = sends(accumulator.poll(5, leader))
    accumulator.handle(BatchAcknowledged(batch.batch_id, batch.attempts, 0), 6)
    with pytest.raises(BufferError):
        put(accumulator, b"b")
    accumulator.unserved -= 1
    put(accumulator, b"b")


def test_accumulator_refuses_a_record_above_message_max_bytes_and_an_unknown_partition() -> None:
    accumulator = make()
    with pytest.raises(KafkaException, match=r"MESSAGE_TOO_LARGE.*10000"):
        put(accumulator, b"x" * 10_001)
    with pytest.raises(KafkaException, match=r"_UNKNOWN_PARTITION.*no partition 9, it has 2"):
        put(accumulator, b"x", partition=9)
    assert len(accumulator) == 0


def test_accumulator_holds_records_until_the_topic_is_known_and_keeps_their_order() -> None:
    accumulator = make(partitions=None)
    assert put(accumulator, b"a")
    put(accumulator, b"z", partition=5, report=print)
    put(accumulator, b"b")
    assert accumulator.poll(0, leader) == [AskMetadata(frozenset(["t"]))]
    [refused] = accumulator.handle(TopicLearned("t", 1, (0,)), 6)
    assert isinstance(refused, Settle)
    assert refused.error is not None
    assert refused.error.code is ErrorCode._UNKNOWN_PARTITION
    assert [values(b) for b in sends(accumulator.poll(6, leader))] == [[b"a", b"b"]]


def test_accumulator_gives_up_a_topic_that_stays_unknown_and_an_invalid_one_at_once() -> None:
    unknown = TopicRefused("t", error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 'there is no topic "t"'))
    accumulator = make(partitions=None)
    put(accumulator, b"a")
    assert accumulator.handle(unknown, 10) == []
    assert accumulator.handle(unknown, 309) == []
    [settle] = accumulator.handle(unknown, 310)
    assert isinstance(settle, Settle)
    assert settle.error is not None
    assert settle.error.code is ErrorCode._UNKNOWN_TOPIC
    put(accumulator, b"a")
    invalid = TopicRefused("t", error_for(ErrorCode.INVALID_TOPIC_EXCEPTION, "t"))
    assert len(accumulator.handle(invalid, 311)) == 1
    assert len(accumulator) == 0


def test_accumulator_forgives_a_topic_that_appears_in_time() -> None:
    unknown = TopicRefused("t", error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 'there is no topic "t"'))
    accumulator = make(partitions=None)
    put(accumulator, b"a")
    accumulator.handle(unknown, 10)
    accumulator.handle(TopicLearned("t", 1, (0,)), 20)
    assert accumulator.handle(unknown, 400) == []


def test_accumulator_asks_for_metadata_when_an_answer_is_overdue_and_waits_for_the_same_leader() -> None:
    accumulator = make(replace(LIMITS, message_timeout_ms=60_000))
    put(accumulator, b"a")
    [batch] = sends(accumulator.poll(5, leader))
    assert accumulator.next_timer_ms(5) == 1_005
    assert accumulator.poll(1_004, leader) == []
    for now_ms, leader_of in ((1_005, leader), (1_500, lambda t, p: None)):
        assert accumulator.poll(now_ms, leader_of) == [AskMetadata(frozenset(["t"]))]
    assert accumulator.next_timer_ms(1_500) == 60_000
    [settle] = accumulator.handle(BatchAcknowledged(batch.batch_id, 0, 7), 1_600)
    assert isinstance(settle, Settle)
    assert (settle.error, settle.base_offset) == (None, 7)


def test_accumulator_sends_an_overdue_batch_to_the_new_leader_and_ignores_the_old_one() -> None:
    accumulator = make(replace(LIMITS, message_timeout_ms=60_000, batch_num_messages=1))
    put(accumulator, b"a")
    put(accumulator, b"b")
    [first] = sends(accumulator.poll(5, leader))
    [send] = accumulator.poll(2_000, lambda t, p: 2)
    assert isinstance(send, Send)
    assert (send.node_id, send.batches, send.attempts) == (2, [first], [1])
    assert accumulator.handle(BatchAcknowledged(first.batch_id, 0, 7), 2_001) == []
    assert accumulator.handle(BatchFailed(first.batch_id, 0, FATAL), 2_001) == []
    assert accumulator.poll(2_001, lambda t, p: 2) == []
    [settle] = accumulator.handle(BatchAcknowledged(first.batch_id, 1, 3), 2_002)
    assert isinstance(settle, Settle)
    assert settle.base_offset == 3
    assert [values(b) for b in sends(accumulator.poll(2_002, lambda t, p: 2))] == [[b"b"]]


def test_accumulator_waits_for_an_overdue_answer_when_no_retry_is_left() -> None:
    accumulator = make(replace(LIMITS, message_timeout_ms=60_000, retries=0))
    put(accumulator, b"a")
    accumulator.poll(5, leader)
    assert accumulator.next_timer_ms(5) == 60_000
    assert accumulator.poll(2_000, lambda t, p: 2) == []


def test_accumulator_gives_a_topic_that_was_given_up_its_time_again() -> None:
    unknown = TopicRefused("t", error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 'there is no topic "t"'))
    accumulator = make(partitions=None)
    put(accumulator, b"a")
    accumulator.handle(unknown, 10)
    assert len(accumulator.handle(unknown, 400)) == 1
    put(accumulator, b"b", now_ms=5_000)
    assert accumulator.handle(unknown, 5_001) == []
    assert accumulator.handle(TopicLearned("t", 1, (0,)), 5_002) == []
    assert [values(b) for b in sends(accumulator.poll(6_000 - 1, leader))] == [[b"b"]]


def test_accumulator_names_the_limits_when_it_is_full() -> None:
    accumulator = make(replace(LIMITS, max_messages=1, max_bytes=2_048))
    put(accumulator, b"a")
    with pytest.raises(BufferError, match=r"queue\.buffering\.max\.messages=1 or queue\.buffering\.max\.kbytes=2"):
        put(accumulator, b"b")


def test_accumulator_purges_what_waits_and_what_is_in_flight() -> None:
    accumulator = make(replace(LIMITS, batch_num_messages=1))
    for _ in range(3):
        put(accumulator, b"a")
    accumulator.poll(0, leader)
    commands = accumulator.purge(in_queue=True, in_flight=True)
    codes = [c.error.code for c in commands if isinstance(c, Settle) and c.error]
    assert codes == [ErrorCode._PURGE_INFLIGHT, ErrorCode._PURGE_QUEUE, ErrorCode._PURGE_QUEUE]
    assert len(accumulator) == 0
    accumulator.check_invariants()


def test_accumulator_spreads_records_without_key_batch_by_batch() -> None:
    accumulator = Accumulator(LIMITS, lambda attempt: 10.0, lambda n: 0)
    accumulator.handle(TopicLearned("t", 3, (0, 1, 2)), 0)
    for n in range(30):
        accumulator.append("t", -1, None, b"%d" % n, (), 1, None, 0)
    batches = sends(accumulator.poll(0, leader))
    assert sum(b.count for b in batches) + 10 >= 30
    assert len({b.partition for b in batches}) >= 2


class AccumulatorMachine(RuleBasedStateMachine):
    """A cluster that acknowledges, fails, loses answers and stays silent, in any order.

    Properties: every record is settled exactly once; what is acknowledged is in the log; without a batch that
    timed out, the log has a partition's records in the order of produce(), repeats aside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.accumulator = make(replace(LIMITS, overdue_ms=20), partitions=None)
        self.in_flight: dict[tuple[int, int], Batch] = {}
        self.node = 1
        self.logs: dict[int, list[bytes]] = defaultdict(list)
        self.produced: dict[int, list[bytes]] = defaultdict(list)
        self.settled: dict[bytes, KafkaException | None] = {}
        self.timed_out = False
        self.serial = 0
        self.has_leader = True

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(node_id=node_id, batches=batches, attempts=attempts):
                    assert node_id == self.node
                    for batch, attempt in zip(batches, attempts, strict=True):
                        current = [b for (_, a), b in self.in_flight.items() if a == b.attempts]
                        earlier = [b for b in current if b.partition == batch.partition]
                        assert all(b is batch for b in earlier), "two batches of a partition are in flight"
                        self.in_flight[batch.batch_id, attempt] = batch
                case Settle() as settle:
                    self.settle(settle)
                case AskMetadata():
                    pass

    def settle(self, settle: Settle) -> None:
        assert settle.count == len(settle.deliveries)
        for delivery in settle.deliveries:
            assert delivery.value is not None
            assert delivery.value not in self.settled, "settled twice"
            self.settled[delivery.value] = settle.error
            if settle.error is None:
                assert delivery.value in self.logs[settle.partition]
        self.accumulator.unserved -= len(settle.deliveries)
        if settle.error is not None and settle.error.code is ErrorCode._MSG_TIMED_OUT:
            self.timed_out = True
            self.in_flight = {i: b for i, b in self.in_flight.items() if not set(values(b)) & set(self.settled)}

    @rule(partition=st.integers(0, 2), count=st.integers(1, 12))
    def produce(self, partition: int, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self.serial
            self.serial += 1
            self.produced[partition].append(value)
            put(self.accumulator, value, partition, self.now_ms, report=print)

    @rule(elapsed=st.sampled_from([0, 1, 5, 20, 300]))
    def poll(self, elapsed: int) -> None:
        self.now_ms += elapsed
        self.do(self.accumulator.poll(self.now_ms, lambda t, p: self.node if self.has_leader else None))

    @rule()
    def learn(self) -> None:
        self.do(self.accumulator.handle(TopicLearned("t", 3, (0, 1, 2)), self.now_ms))

    @rule()
    def toggle_leader(self) -> None:
        self.has_leader = not self.has_leader

    @rule()
    def move_leader(self) -> None:
        self.node += 1

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), outcome=st.sampled_from(["ack", "lost request", "lost answer", "refused", "too large"]))
    def answer(self, data: st.DataObject, outcome: str) -> None:
        batch_id, attempt = data.draw(st.sampled_from(sorted(self.in_flight)))
        batch = self.in_flight.pop((batch_id, attempt))
        # The answer to an attempt that was given up: what it has written goes with its leader.
        if attempt != batch.attempts:
            outcome = "lost request" if outcome == "lost answer" else outcome
        if outcome in ("ack", "lost answer") and attempt == batch.attempts:
            self.logs[batch.partition].extend(v for v in values(batch) if v is not None)
        match outcome:
            case "ack":
                event: Any = BatchAcknowledged(batch_id, attempt, 0)
            case "refused":
                event = BatchFailed(batch_id, attempt, FATAL)
            case "too large":
                event = BatchFailed(batch_id, attempt, FATAL, is_refused=True)
            case _:
                event = BatchFailed(batch_id, attempt, RETRIABLE)
        self.do(self.accumulator.handle(event, self.now_ms))

    @invariant()
    def invariants_hold(self) -> None:
        self.accumulator.check_invariants()
        assert self.accumulator.count + len(self.settled) == self.serial

    @invariant()
    def log_keeps_the_order_of_produce(self) -> None:
        for partition, log in self.logs.items():
            first_seen = list(dict.fromkeys(log))
            order = {value: n for n, value in enumerate(self.produced[partition])}
            assert [order[v] for v in first_seen] == sorted(order[v] for v in first_seen)

    def teardown(self) -> None:
        self.has_leader = True
        self.learn()
        self.accumulator.flushing = 1
        for _ in range(10_000):
            self.poll(20)
            if not self.in_flight and not self.accumulator.count:
                break
            for (batch_id, attempt), batch in list(self.in_flight.items()):
                del self.in_flight[batch_id, attempt]
                if attempt == batch.attempts:
                    self.logs[batch.partition].extend(v for v in values(batch) if v is not None)
                self.do(self.accumulator.handle(BatchAcknowledged(batch_id, attempt, 0), self.now_ms))
        assert len(self.settled) == self.serial, "not every record was settled"
        assert len(self.accumulator) == 0
        self.invariants_hold()


TestAccumulatorMachine = AccumulatorMachine.TestCase
TestAccumulatorMachine.settings = settings(max_examples=examples(60), stateful_step_count=steps(40), deadline=None)
