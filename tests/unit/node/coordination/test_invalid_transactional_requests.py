"""Requests of transactions with invalid values: each has Kafka's error, and none changes or breaks anything.

gRPC's messages have wider numbers than Kafka's, so the handlers get the values of both listeners.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_transactions import ID, KafkaTransactions, kafka_transactions

from tidelog_foundation.errors import ErrorCode, RetriableError, TidelogError
from tidelog_foundation.requests.partitions import TopicPartitions
from tidelog_node import handlers
from tidelog_node.coordination import TRANSACTION_TOPIC
from tidelog_node.handlers import transactions
from tidelog_node.handlers.producers import init_producer_id
from tidelog_node.handlers.requests import transactions as requests
from tidelog_node.handlers.requests.producers import InitProducerIdRequest

TIMEOUT_MS = 60_000
T0 = (TopicPartitions("t", (0,)),)
LONG = "x" * 100_000
IDS = ("", LONG, "é" * 20_000, ID, "none", "\0")
NUMBERS = (-(2**63), -(2**31), -2, -1, 0, 1, 32_766, 32_767, 32_768, 2**31 - 1, 2**63 - 1)
EPOCHS = tuple(number for number in NUMBERS if -(2**31) <= number < 2**31)
VERSIONS = (-(2**31), -1, 0, 1, 2, 3, 127, 128, 32_768, 2**31 - 1)
INDEXES = ((0,), (0, 0), (-1,), (2**31 - 1,), (0, 99), ())


@pytest.fixture
def on_node(tmp_path: Path) -> Callable[[Callable[[Any], Awaitable[None]]], None]:
    def run(test: Callable[[Any], Awaitable[None]]) -> None:
        async def within() -> None:
            async with kafka_transactions(tmp_path) as nodes:
                await test(nodes)

        asyncio.run(asyncio.wait_for(within(), 60))

    return run


async def producer_of(nodes: KafkaTransactions) -> tuple[int, int]:
    """Return the producer of ID, in an open transaction with partition 0."""
    while True:
        try:
            given = await init_producer_id(nodes.nodes[1].context, InitProducerIdRequest(ID, TIMEOUT_MS))
            break
        except RetriableError:
            await asyncio.sleep(0.005)
    producer = (given.producer_id, given.producer_epoch)
    added = requests.AddPartitionsToTxnTransaction(ID, *producer, topics=T0)
    assert await code_of(nodes, added) is ErrorCode.NONE
    return producer


async def code_of(nodes: KafkaTransactions, request: Any) -> ErrorCode:
    """Return the code of a request, or that of its first partition with an error."""
    try:
        error = await _error_of(nodes.nodes[1].context, request)
    except TidelogError as raised:
        error = raised
    return ErrorCode.NONE if error is None else error.code


async def _error_of(context: Any, request: Any) -> TidelogError | None:
    match request:
        case InitProducerIdRequest():
            await init_producer_id(context, request)
            return None
        case requests.AddPartitionsToTxnTransaction():
            answer = await transactions.add_partitions_to_txn(context, requests.AddPartitionsToTxnRequest((request,)))
            [result] = answer.transactions
            errors = [p.error for topic in result.topics for p in topic.partitions if p.error is not None]
            return result.error or next(iter(errors), None)
        case requests.AddOffsetsToTxnRequest():
            return (await transactions.add_offsets_to_txn(context, request)).error
        case requests.EndTxnRequest():
            return (await transactions.end_txn(context, request)).error
        case requests.DescribeTransactionsRequest():
            found = await transactions.describe_transactions(context, request)
            return next((each.error for each in found.transactions if each.error is not None), None)
        case requests.ListTransactionsRequest():
            return (await transactions.list_transactions(context, request)).error
        case requests.WritableTxnMarker():
            written = await handlers.write_txn_markers(context, requests.WriteTxnMarkersRequest((request,)))
            results = [p.error for topic in written.markers[0].topics for p in topic.partitions]
            return next((error for error in results if error is not None), None)
    raise AssertionError(request)


async def state_of(nodes: KafkaTransactions) -> Any:
    described = await transactions.describe_transactions(
        nodes.nodes[1].context, requests.DescribeTransactionsRequest((ID,))
    )
    return described.transactions[0]


def end_of_log(nodes: KafkaTransactions) -> int:
    partition = nodes.cluster.nodes[1].registry.get(TRANSACTION_TOPIC, 0)
    assert partition is not None
    return partition.log.log_end_offset


def init(name: str | None = ID, timeout_ms: int = TIMEOUT_MS, **fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(name, timeout_ms, **fields)


E = ErrorCode
_OTHER = 1 << 40
REFUSED: list[tuple[Callable[[int, int], Any], ErrorCode]] = [
    (lambda p, e: init(""), E.INVALID_REQUEST),
    (lambda p, e: init(LONG), E.INVALID_REQUEST),
    (lambda p, e: init(timeout_ms=0), E.INVALID_TRANSACTION_TIMEOUT),
    (lambda p, e: init(timeout_ms=-1), E.INVALID_TRANSACTION_TIMEOUT),
    (lambda p, e: init(timeout_ms=900_001), E.INVALID_TRANSACTION_TIMEOUT),
    (lambda p, e: init(timeout_ms=2**31 - 1), E.INVALID_TRANSACTION_TIMEOUT),
    (lambda p, e: init(producer_id=p, producer_epoch=40_000), E.PRODUCER_FENCED),
    (lambda p, e: init(producer_id=-5, producer_epoch=-5), E.PRODUCER_FENCED),
    (lambda p, e: init(producer_id=p), E.INVALID_REQUEST),
    (lambda p, e: init(enable_two_phase_commit=True), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    (lambda p, e: requests.AddPartitionsToTxnTransaction("", p, e, topics=T0), E.INVALID_REQUEST),
    (lambda p, e: requests.AddPartitionsToTxnTransaction(LONG, p, e, topics=T0), E.INVALID_REQUEST),
    (lambda p, e: requests.AddPartitionsToTxnTransaction(ID, -1, e, topics=T0), E.INVALID_PRODUCER_ID_MAPPING),
    (lambda p, e: requests.AddPartitionsToTxnTransaction(ID, p, -1, topics=T0), E.PRODUCER_FENCED),
    (lambda p, e: requests.AddPartitionsToTxnTransaction(ID, p, 70_000, topics=T0), E.PRODUCER_FENCED),
    (
        lambda p, e: requests.AddPartitionsToTxnTransaction(ID, p, e, topics=(TopicPartitions("t", (1, -1)),)),
        E.OPERATION_NOT_ATTEMPTED,
    ),
    (
        lambda p, e: requests.AddPartitionsToTxnTransaction(ID, p, e, topics=(TopicPartitions(LONG, (1,)),)),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    (lambda p, e: requests.AddOffsetsToTxnRequest("", p, e, "g"), E.INVALID_REQUEST),
    (lambda p, e: requests.AddOffsetsToTxnRequest(ID, p, e, LONG), E.INVALID_GROUP_ID),
    (lambda p, e: requests.AddOffsetsToTxnRequest(ID, p, e, "é" * 20_000), E.INVALID_GROUP_ID),
    (lambda p, e: requests.EndTxnRequest("", p, e, True), E.INVALID_REQUEST),
    (lambda p, e: requests.EndTxnRequest(LONG, p, e, True), E.INVALID_REQUEST),
    (lambda p, e: requests.EndTxnRequest("none", p, e, True), E.INVALID_PRODUCER_ID_MAPPING),
    (lambda p, e: requests.EndTxnRequest(ID, _OTHER, e, True), E.INVALID_PRODUCER_ID_MAPPING),
    (lambda p, e: requests.EndTxnRequest(ID, p, -1, True), E.PRODUCER_FENCED),
    (lambda p, e: requests.EndTxnRequest(ID, p, e, True, 2**31 - 1), E.INVALID_REQUEST),
    (lambda p, e: requests.EndTxnRequest(ID, p, e, True, -1), E.INVALID_REQUEST),
    (
        lambda p, e: requests.AddPartitionsToTxnTransaction(
            ID, p, e, topics=(TopicPartitions("t", (1,)),), transaction_version=99
        ),
        E.INVALID_REQUEST,
    ),
    (lambda p, e: requests.DescribeTransactionsRequest(("",)), E.INVALID_REQUEST),
    (lambda p, e: requests.DescribeTransactionsRequest((LONG,)), E.INVALID_REQUEST),
    (lambda p, e: requests.ListTransactionsRequest(("x",) * 1_000 + tuple(map(str, range(200)))), E.INVALID_REQUEST),
    (lambda p, e: requests.ListTransactionsRequest(transactional_id_pattern="("), E.INVALID_REGULAR_EXPRESSION),
    (lambda p, e: requests.WritableTxnMarker(-1, 0, True, T0, 0), E.INVALID_REQUEST),
    (lambda p, e: requests.WritableTxnMarker(p, -1, True, T0, 0), E.INVALID_REQUEST),
    (lambda p, e: requests.WritableTxnMarker(p, 40_000, True, T0, 0), E.INVALID_REQUEST),
    (
        lambda p, e: requests.WritableTxnMarker(p, e, True, (TopicPartitions("t", (99,)),), 0),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
]


def test_invalid_values_have_kafkas_errors_and_change_nothing(on_node: Any) -> None:
    async def test(nodes: KafkaTransactions) -> None:
        producer = await producer_of(nodes)
        before, end = await state_of(nodes), end_of_log(nodes)
        for make, expected in REFUSED:
            request = make(*producer)
            found = await code_of(nodes, request)
            assert found is expected, (str(request)[:200], found)
            assert (await state_of(nodes), end_of_log(nodes)) == (before, end), str(request)[:200]
        assert await code_of(nodes, requests.EndTxnRequest(ID, *producer, True)) is ErrorCode.NONE

    on_node(test)


def any_request(draw: random.Random, producer: tuple[int, int]) -> Any:
    name = draw.choice(IDS)
    producer_id = draw.choice((*NUMBERS, producer[0]))
    epoch, version = draw.choice((*EPOCHS, producer[1])), draw.choice(VERSIONS)
    topics = tuple(TopicPartitions(draw.choice(("t", "t", "", LONG)), draw.choice(INDEXES)) for _ in range(2))
    fields = (name, producer_id, epoch)
    match draw.randrange(7):
        case 0:
            optional = {"producer_id": draw.choice((None, producer_id)), "producer_epoch": draw.choice((None, epoch))}
            return init(draw.choice((None, name)), draw.choice(EPOCHS), **optional)
        case 1:
            return requests.AddPartitionsToTxnTransaction(*fields, draw.random() < 0.5, topics, version)
        case 2:
            return requests.AddOffsetsToTxnRequest(*fields, draw.choice(("", "g", LONG)))
        case 3:
            return requests.EndTxnRequest(*fields, draw.random() < 0.5, version)
        case 4:
            return requests.DescribeTransactionsRequest((name,) * draw.choice((0, 1, 3)))
        case 5:
            return requests.ListTransactionsRequest((name,), (producer_id,), draw.choice(NUMBERS), name)
        case _:
            # A greater epoch of the coordinator would fence the coordinator itself.
            return requests.WritableTxnMarker(producer_id, epoch, draw.random() < 0.5, topics, min(epoch, 0), version)


@pytest.mark.parametrize("seed", range(4))
def test_no_value_breaks_the_coordinator(on_node: Any, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def test(nodes: KafkaTransactions) -> None:
        draw = random.Random(seed)
        for _ in range(10):
            producer = await producer_of(nodes)
            for _ in range(40):
                code = await code_of(nodes, any_request(draw, producer))
                assert code is not ErrorCode.UNKNOWN_SERVER_ERROR
        assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(nodes.coordinators[1]._drivers) == 1

    on_node(test)
