"""Requests that arrive late, before transaction version 2, take no part in the next transaction (KAFKA-17754)."""

from __future__ import annotations

import pytest
from transaction_shards import TransactionHarness

from tidelog_foundation.errors import ErrorCode
from tidelog_node.shards import connections
from tidelog_node.shards.connections import UNORDERED, ConnectionOrder
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TransactionRequest,
)
from tidelog_node.transactions.states import Producer, TransactionState

ID = "payments"
FIRST, SECOND, THIRD = 1_000_000, 2_000_000, 3_000_000
"""The times at which the connections of a client are opened."""
S = TransactionState


@pytest.fixture
def harness() -> TransactionHarness:
    return TransactionHarness()


def init(harness: TransactionHarness) -> Producer:
    response = harness.ask(InitProducerIdRequest(ID, 60_000))
    assert isinstance(response, InitProducerIdResponse)
    return response.producer


def add(producer: Producer, connection_us: int) -> AddPartitionsRequest:
    return AddPartitionsRequest(ID, producer, (("orders", 0),), connection_us=connection_us)


def end(producer: Producer, connection_us: int, *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(ID, producer, committed, connection_us=connection_us)


def code_of(harness: TransactionHarness, request: TransactionRequest) -> ErrorCode:
    error = harness.ask(request).error
    return ErrorCode.NONE if error is None else error.code


def state(harness: TransactionHarness) -> TransactionState:
    response = harness.ask(DescribeTransactionsRequest((ID,)))
    assert isinstance(response, DescribeTransactionsResponse)
    metadata = response.transactions[0].metadata
    assert metadata is not None
    return metadata.state


@pytest.mark.parametrize("committed", [True, False])
def test_late_end_of_a_transaction_does_not_end_the_next_one(harness: TransactionHarness, committed: bool) -> None:
    producer = init(harness)
    assert code_of(harness, add(producer, FIRST)) is ErrorCode.NONE
    # The client has sent EndTxn on its first connection, has lost the connection, and repeats the request.
    assert code_of(harness, end(producer, SECOND, committed=committed)) is ErrorCode.NONE
    assert code_of(harness, add(producer, SECOND)) is ErrorCode.NONE
    assert code_of(harness, end(producer, FIRST, committed=committed)) is ErrorCode.NETWORK_EXCEPTION
    assert state(harness) is S.ONGOING
    assert code_of(harness, end(producer, SECOND)) is ErrorCode.NONE
    assert state(harness) is S.COMPLETE_COMMIT


def test_late_addition_of_partitions_begins_no_transaction(harness: TransactionHarness) -> None:
    producer = init(harness)
    assert code_of(harness, add(producer, SECOND)) is ErrorCode.NONE
    assert code_of(harness, end(producer, SECOND)) is ErrorCode.NONE
    assert code_of(harness, add(producer, FIRST)) is ErrorCode.NETWORK_EXCEPTION
    assert state(harness) is S.COMPLETE_COMMIT


def test_late_request_that_a_new_coordinator_gets_is_not_executed(harness: TransactionHarness) -> None:
    producer = init(harness)
    assert code_of(harness, add(producer, SECOND)) is ErrorCode.NONE
    harness.now_ms = SECOND // 1_000 + 1
    harness.fail_over()
    assert code_of(harness, end(producer, FIRST)) is ErrorCode.NETWORK_EXCEPTION
    assert code_of(harness, end(producer, SECOND)) is ErrorCode.NETWORK_EXCEPTION
    assert state(harness) is S.ONGOING
    assert code_of(harness, end(producer, THIRD)) is ErrorCode.NONE


def test_request_on_a_connection_that_is_older_than_the_epoch_is_executed(harness: TransactionHarness) -> None:
    harness.now_ms = SECOND // 1_000
    harness.fail_over()
    producer = init(harness)
    assert code_of(harness, add(producer, FIRST)) is ErrorCode.NONE
    assert code_of(harness, end(producer, FIRST)) is ErrorCode.NONE
    assert code_of(harness, end(producer, SECOND)) is ErrorCode.NONE
    again = init(harness)
    assert code_of(harness, add(again, FIRST)) is ErrorCode.NONE


def test_fenced_producer_on_a_new_connection_does_not_hinder_its_successor(harness: TransactionHarness) -> None:
    fenced, producer = init(harness), init(harness)
    assert code_of(harness, add(producer, FIRST)) is ErrorCode.NONE
    assert code_of(harness, end(fenced, THIRD)) is ErrorCode.PRODUCER_FENCED
    assert code_of(harness, end(Producer(producer.id, producer.epoch + 1), THIRD)) is ErrorCode.PRODUCER_FENCED
    assert code_of(harness, end(producer, FIRST)) is ErrorCode.NONE


def test_requests_without_a_connection_are_never_late(harness: TransactionHarness) -> None:
    producer = init(harness)
    assert code_of(harness, add(producer, SECOND)) is ErrorCode.NONE
    assert code_of(harness, end(producer, UNORDERED)) is ErrorCode.NONE


def test_producers_that_are_forgotten_need_a_connection_that_is_newer_than_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_PRODUCERS", 2)
    order = ConnectionOrder()
    assert [order.is_late(producer_id, 0, SECOND) for producer_id in (1, 2, 3)] == [False] * 3
    assert order.is_late(1, 0, FIRST)
    assert not order.is_late(1, 0, SECOND)
    assert not order.is_late(3, 0, THIRD)
    assert order.is_late(3, 0, SECOND)
