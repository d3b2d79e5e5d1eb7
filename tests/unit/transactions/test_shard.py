"""One shard of the transaction coordinator: order, waits, time and failover."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transaction_shards import WALL_MS, TransactionHarness

from tidelog_foundation.errors import ErrorCode
from tidelog_node.shards.store import owner_of
from tidelog_node.transactions.calls import CONCURRENT_WAIT_MS
from tidelog_node.transactions.partition_order import STEP_PARTITIONS
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionRequest,
)
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import NO_PRODUCER, NO_TIMEOUT_MS, Producer, TransactionState

ID = "payments"
PARTITIONS = (("orders", 0), ("orders", 1))
S = TransactionState


@pytest.fixture
def harness() -> TransactionHarness:
    return TransactionHarness()


def init(harness: TransactionHarness, name: str = ID, **fields: object) -> Producer:
    response = harness.ask(InitProducerIdRequest(name, 60_000, **fields))  # type: ignore[arg-type]
    assert isinstance(response, InitProducerIdResponse)
    assert response.error is None
    return response.producer


def add(producer: Producer, name: str = ID, version: int = 2) -> AddPartitionsRequest:
    return AddPartitionsRequest(name, producer, PARTITIONS, version=version)


def end(producer: Producer, *, committed: bool = True, version: int = 2, name: str = ID) -> EndTxnRequest:
    return EndTxnRequest(name, producer, committed, version)


def error_of(harness: TransactionHarness, request: TransactionRequest) -> ErrorCode | None:
    error = harness.ask(request).error
    return None if error is None else error.code


def begun(harness: TransactionHarness, name: str = ID) -> Producer:
    producer = init(harness, name)
    assert error_of(harness, add(producer, name)) is None
    return producer


def state(harness: TransactionHarness, name: str = ID) -> TransactionState:
    response = harness.ask(DescribeTransactionsRequest((name,)))
    assert isinstance(response, DescribeTransactionsResponse)
    metadata = response.transactions[0].metadata
    assert metadata is not None
    return metadata.state


def test_transactions_of_one_producer_follow_each_other(harness: TransactionHarness) -> None:
    producer = init(harness)
    for number in range(5):
        assert error_of(harness, add(producer)) is None
        response = harness.ask(end(producer, committed=number % 2 == 0))
        assert isinstance(response, EndTxnResponse)
        assert response.producer == (producer.id, producer.epoch + 1)
        producer = response.producer
    assert state(harness) is S.COMPLETE_COMMIT


def test_nothing_is_answered_or_marked_before_its_record_is_committed(harness: TransactionHarness) -> None:
    producer = init(harness)
    added = harness.call(add(producer))
    assert added not in harness.answers
    ended = harness.call(end(producer))
    harness.commit(1)
    assert harness.answers[added] == AddPartitionsResponse()
    assert ended not in harness.answers
    assert not harness.markers
    harness.commit()
    assert harness.answers[ended] == EndTxnResponse(Producer(producer.id, 1))
    assert [m.producer for m in harness.markers] == [(producer.id, 1)]
    assert harness.markers[0].partitions == set(PARTITIONS)


def test_repeated_request_is_answered_when_the_first_one_is_committed(harness: TransactionHarness) -> None:
    producer = init(harness)
    harness.call(add(producer))
    repeated = harness.call(add(producer))
    verified = harness.call(AddPartitionsRequest(ID, producer, (PARTITIONS[0], ("other", 0)), verify_only=True))
    assert not harness.answers.keys() & {repeated, verified}
    harness.commit()
    assert harness.answers[repeated] == AddPartitionsResponse()
    response = harness.answers[verified]
    assert isinstance(response, AddPartitionsResponse)
    assert {p: e.code for p, e in (response.errors or {}).items()} == {("other", 0): ErrorCode.TRANSACTION_ABORTABLE}


def test_request_during_the_markers_waits_for_them(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.call(end(producer))
    harness.commit()
    successor = Producer(producer.id, producer.epoch + 1)
    added = harness.call(add(successor))
    harness.mark()
    harness.commit()
    assert harness.answers[added] == AddPartitionsResponse()
    assert state(harness) is S.ONGOING


def test_request_during_the_markers_is_refused_after_the_wait(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.call(end(producer))
    harness.commit()
    added = harness.call(add(Producer(producer.id, producer.epoch + 1)))
    harness.pass_time(CONCURRENT_WAIT_MS - 1)
    assert added not in harness.answers
    harness.pass_time(1)
    error = harness.answers[added].error
    assert error is not None
    assert error.code is ErrorCode.CONCURRENT_TRANSACTIONS
    harness.mark()
    harness.commit()
    assert state(harness) is S.COMPLETE_COMMIT


def test_request_whose_caller_has_gone_has_no_effect(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.call(end(producer, version=1))
    harness.commit()
    delayed = harness.call(end(producer, version=1))
    harness.abandon(delayed)
    harness.settle()
    assert error_of(harness, add(producer, version=1)) is None
    assert state(harness) is S.ONGOING


def test_initialize_aborts_the_open_transaction_of_the_producer_before(harness: TransactionHarness) -> None:
    old = begun(harness)
    call_id = harness.call(InitProducerIdRequest(ID, 60_000))
    harness.commit()
    assert [(m.producer, m.committed) for m in harness.markers] == [((old.id, 1), False)]
    harness.settle()
    response = harness.answers[call_id]
    assert isinstance(response, InitProducerIdResponse)
    assert response.producer == (old.id, 2)
    assert error_of(harness, add(old)) is ErrorCode.PRODUCER_FENCED
    assert error_of(harness, end(old)) is ErrorCode.PRODUCER_FENCED


def test_zombie_cannot_abort_the_transaction_of_its_successor(harness: TransactionHarness) -> None:
    zombie = init(harness)
    producer = begun(harness)
    assert error_of(harness, InitProducerIdRequest(ID, 60_000, zombie)) is ErrorCode.PRODUCER_FENCED
    assert state(harness) is S.ONGOING
    assert error_of(harness, end(producer)) is None


def test_open_transaction_is_aborted_after_its_timeout(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.pass_time(59_999)
    assert not harness.uncommitted
    harness.pass_time(10_001)
    harness.settle()
    assert state(harness) is S.COMPLETE_ABORT
    assert error_of(harness, add(producer)) is ErrorCode.PRODUCER_FENCED
    assert error_of(harness, end(producer)) is ErrorCode.INVALID_TXN_STATE


def test_producer_goes_on_after_its_transaction_timed_out(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.pass_time(70_000)
    harness.settle()
    aborted = harness.ask(end(producer, committed=False))
    assert isinstance(aborted, EndTxnResponse)
    assert aborted.producer == (producer.id, producer.epoch + 1)
    again = harness.ask(InitProducerIdRequest(ID, 60_000, producer))
    assert isinstance(again, InitProducerIdResponse)
    assert again.producer == aborted.producer


def test_prepared_transaction_of_a_two_phase_commit_never_times_out() -> None:
    harness = TransactionHarness(TransactionSettings(two_phase_commit_enable=True))
    producer = init(harness, is_two_phase=True)
    assert error_of(harness, add(producer)) is None
    harness.pass_time(10 * 24 * 3_600_000)
    harness.settle()
    assert state(harness) is S.ONGOING
    response = harness.ask(InitProducerIdRequest(ID, 60_000, is_two_phase=True, keep_prepared=True))
    assert isinstance(response, InitProducerIdResponse)
    assert (response.ongoing, response.producer) == (producer, (producer.id, producer.epoch + 1))
    harness.fail_over()
    harness.settle()
    assert error_of(harness, end(response.producer)) is None
    assert state(harness) is S.COMPLETE_COMMIT
    stored = harness.stored(ID)
    assert stored is not None
    assert stored.timeout_ms == NO_TIMEOUT_MS


def test_keep_prepared_without_an_open_transaction_is_an_ordinary_start(harness: TransactionHarness) -> None:
    response = harness.ask(InitProducerIdRequest(ID, 60_000, keep_prepared=True))
    assert isinstance(response, InitProducerIdResponse)
    assert (response.ongoing, response.producer.epoch) == (NO_PRODUCER, 0)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest(ID, 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest(ID, 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest(ID, 1, is_two_phase=True), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (add(Producer(1, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (end(Producer(1, 0)), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_request_out_of_place_is_refused(
    harness: TransactionHarness, request_: TransactionRequest, code: ErrorCode
) -> None:
    assert error_of(harness, request_) is code
    assert not list(harness.store.ids())


@pytest.mark.costly
@pytest.mark.parametrize("keeps_uncommitted", [0, 1])
def test_failover_ends_every_prepared_transaction(harness: TransactionHarness, keeps_uncommitted: int) -> None:
    names = [f"{ID}-{number}" for number in range(250)]
    producers = {name: begun(harness, name) for name in names}
    for name in names[:200]:
        harness.call(end(producers[name], name=name, committed=name < names[100]))
        harness.commit()
    harness.call(end(producers[names[200]], name=names[200]))
    harness.fail_over(keeps_uncommitted=keeps_uncommitted)
    harness.settle()
    states = [state(harness, name) for name in names]
    assert all(s in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT) for s in states[:200])
    assert states[200] is (S.COMPLETE_COMMIT if keeps_uncommitted else S.ONGOING)
    assert states[201:] == [S.ONGOING] * 49
    harness.pass_time(70_000)
    harness.settle()
    assert state(harness, names[201]) is S.COMPLETE_ABORT


def test_failover_lets_a_client_repeat_its_last_request(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.call(end(producer))
    harness.commit()
    harness.fail_over()
    harness.settle()
    response = harness.ask(end(producer))
    assert response == EndTxnResponse(Producer(producer.id, producer.epoch + 1))
    bumped = init(harness, producer=response.producer)
    harness.fail_over()
    assert init(harness, producer=response.producer) == bumped


def test_idle_transactional_id_expires(harness: TransactionHarness) -> None:
    producer = begun(harness, "idle")
    assert error_of(harness, end(producer, name="idle")) is None
    begun(harness, "open")
    harness.store_state("open", replace(harness.stored("open"), timeout_ms=NO_TIMEOUT_MS))
    harness.fail_over()
    harness.pass_time(8 * 24 * 3_600_000)
    harness.settle()
    assert list(harness.store.ids()) == ["open"]
    assert error_of(harness, add(producer, "idle")) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_write_that_the_log_refuses_changes_nothing(
    harness: TransactionHarness, refused: ErrorCode, code: ErrorCode
) -> None:
    producer = begun(harness)
    harness.refuses_writes = refused
    assert error_of(harness, end(producer)) is code
    assert error_of(harness, InitProducerIdRequest(ID, 60_000)) is code
    harness.refuses_writes = None
    assert state(harness) is S.ONGOING
    assert error_of(harness, end(producer)) is None


def test_complete_transaction_that_the_log_refuses_is_recorded_later(harness: TransactionHarness) -> None:
    producer = begun(harness)
    harness.call(end(producer))
    harness.commit()
    harness.refuses_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.mark()
    assert state(harness) is S.PREPARE_COMMIT
    harness.refuses_writes = None
    harness.pass_time(100)
    harness.settle()
    assert state(harness) is S.COMPLETE_COMMIT


def test_refused_allocation_of_a_producer_id_is_reported(harness: TransactionHarness) -> None:
    call_id = harness.call(InitProducerIdRequest(ID, 60_000))
    harness.refuse_allocation()
    error = harness.answers[call_id].error
    assert error is not None
    assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_slow_allocation_serves_the_next_request(harness: TransactionHarness) -> None:
    first = harness.call(InitProducerIdRequest(ID, 60_000))
    harness.pass_time(CONCURRENT_WAIT_MS)
    assert harness.answers[first].error is not None
    harness.allocate()
    assert init(harness).epoch == 0


def test_list_filters_by_state_producer_and_age(harness: TransactionHarness) -> None:
    producers = {name: begun(harness, name) for name in ("a", "b", "c")}
    assert error_of(harness, end(producers["a"], name="a")) is None
    harness.fail_over()
    harness.settle()

    def listed(**fields: object) -> set[str]:
        response = harness.ask(ListTransactionsRequest(**fields))  # type: ignore[arg-type]
        assert isinstance(response, ListTransactionsResponse)
        return {line.transactional_id for line in response.transactions}

    assert listed() == {"a", "b", "c"}
    assert listed(states=frozenset({S.ONGOING})) == {"b", "c"}
    assert listed(producer_ids=frozenset({producers["a"].id, producers["c"].id})) == {"a", "c"}
    harness.now_ms += 1_000
    assert listed(running_longer_than_ms=999) == {"b", "c"}
    assert listed(running_longer_than_ms=1_000) == set()


def test_description_has_the_time_and_the_partitions(harness: TransactionHarness) -> None:
    begun(harness)
    response = harness.ask(DescribeTransactionsRequest((ID, "missing")))
    assert isinstance(response, DescribeTransactionsResponse)
    known, missing = response.transactions
    assert known.metadata is not None
    assert (known.metadata.partitions, known.metadata.started_ms) == (set(PARTITIONS), WALL_MS)
    assert missing.error is not None
    assert missing.error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_record_of_very_many_partitions_is_written_in_steps_and_before_later_records(
    harness: TransactionHarness,
) -> None:
    """No step may hold the event loop for long, and answers rely on write ids in the order of the log."""
    producer, other = init(harness), init(harness, "other")
    many = tuple(("orders", index) for index in range(4 * STEP_PARTITIONS))
    large = harness.call(AddPartitionsRequest(ID, producer, many, version=2))
    small = harness.call(add(other, "other"))
    steps = 0
    while not harness.uncommitted:
        assert harness.shard.next_deadline_ms == 0
        harness.pass_time(0)
        steps += 1
    assert steps >= 4
    assert [write.write_id for write in harness.uncommitted] == sorted(w.write_id for w in harness.uncommitted)
    assert [owner_of(write.records[0].key) for write in harness.uncommitted] == [ID, "other"]
    harness.settle()
    assert harness.answers[large].error is harness.answers[small].error is None
    assert harness.stored(ID).partitions == frozenset(many)


def test_request_waits_for_the_record_of_very_many_partitions_of_its_own_id(harness: TransactionHarness) -> None:
    producer = init(harness)
    many = tuple(("orders", index) for index in range(2 * STEP_PARTITIONS))
    harness.call(AddPartitionsRequest(ID, producer, many, version=2))
    ended = harness.call(end(producer))
    assert not harness.uncommitted
    harness.settle()
    assert harness.answers[ended].error is None
    assert harness.stored(ID).state is S.COMPLETE_COMMIT
