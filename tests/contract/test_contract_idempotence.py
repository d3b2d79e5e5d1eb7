"""The guarantees of idempotent producers: each batch is stored once, behind its predecessor, and ids are unique."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog import KafkaError, Message
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder, RecordBatchHeader, iter_headers
from tidelog_foundation.transport import run_sync

MAX_SEQUENCE = 2**31 - 1


Deployment = Any


def batch(
    sequence: int, count: int = 2, producer_id: int = 4_711, epoch: int = 0, *, transactional: bool = False
) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(None, b"%d" % (sequence + number), (), 1_700_000_000_000)
    return builder.build(producer_id, epoch, sequence, transactional)


def code(result: pb.ProducePartitionResult) -> ErrorCode:
    return ErrorCode.of(result.error.code)


def stored_headers(cluster: Deployment, topic: str) -> list[RecordBatchHeader]:
    headers: list[RecordBatchHeader] = []
    end = cluster.end_offset(topic)
    while not headers or headers[-1].last_offset + 1 < end:
        offset = headers[-1].last_offset + 1 if headers else 0
        response = cluster.raw_fetch(topic, offset, 1_000_000)
        headers += [header for _, header in iter_headers(response.topics[0].partitions[0].records)]
    return headers


def test_a_batch_that_is_sent_again_is_stored_once_and_answered_as_before(cluster: Deployment) -> None:
    topic = cluster.topic()
    results = [cluster.raw_produce(topic, batch(sequence)) for sequence in (0, 2, 4, 6, 8)]
    assert [r.base_offset for r in results] == [0, 2, 4, 6, 8]
    for sequence in (8, 0, 4):
        again = cluster.raw_produce(topic, batch(sequence))
        assert not again.HasField("error")
        assert again.base_offset == sequence
    assert cluster.end_offset(topic) == 10


def test_a_duplicate_has_the_append_time_of_the_original(cluster: Deployment) -> None:
    topic = cluster.topic(message_timestamp_type="LogAppendTime")
    first = cluster.raw_produce(topic, batch(0))
    assert first.log_append_time_ms > 1_700_000_000_000
    assert cluster.raw_produce(topic, batch(2)).log_append_time_ms >= first.log_append_time_ms
    assert cluster.raw_produce(topic, batch(0)).log_append_time_ms == first.log_append_time_ms
    assert cluster.raw_produce(cluster.topic(), batch(0)).log_append_time_ms == -1


@pytest.mark.parametrize(
    ("sequence", "count", "epoch", "expected"),
    [
        (10, 2, 0, ErrorCode.NONE),
        (11, 2, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (8, 1, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (9, 2, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 2, 1, ErrorCode.NONE),
        (10, 2, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_only_the_next_sequence_is_taken(
    cluster: Deployment, sequence: int, count: int, epoch: int, expected: ErrorCode
) -> None:
    topic = cluster.topic()
    for earlier in range(0, 10, 2):
        assert code(cluster.raw_produce(topic, batch(earlier))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, batch(sequence, count, epoch=epoch))) is expected
    assert cluster.end_offset(topic) == (12 if expected is ErrorCode.NONE else 10)


def test_the_sixth_last_batch_is_not_known_any_more(cluster: Deployment) -> None:
    topic = cluster.topic()
    for sequence in range(0, 12, 2):
        cluster.raw_produce(topic, batch(sequence))
    assert code(cluster.raw_produce(topic, batch(0))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.raw_produce(topic, batch(2)).base_offset == 2


def test_an_older_epoch_is_refused(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.raw_produce(topic, batch(0))
    cluster.raw_produce(topic, batch(0, epoch=3))
    for sequence in (0, 2):
        assert code(cluster.raw_produce(topic, batch(sequence, epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.raw_produce(topic, batch(0, epoch=3)).base_offset == 2
    assert cluster.end_offset(topic) == 4


def test_sequences_go_on_at_0_behind_the_largest(cluster: Deployment) -> None:
    topic = cluster.topic()
    assert code(cluster.raw_produce(topic, batch(MAX_SEQUENCE - 2))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, batch(MAX_SEQUENCE, 3))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, batch(0))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert cluster.raw_produce(topic, batch(MAX_SEQUENCE, 3)).base_offset == 2
    assert cluster.raw_produce(topic, batch(2)).base_offset == 5
    assert cluster.end_offset(topic) == 7


def test_a_producer_that_is_not_known_begins_with_any_sequence_and_others_have_their_own(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    assert code(cluster.raw_produce(topic, batch(100))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, batch(7, producer_id=4_712, epoch=9))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, batch(102))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, batch(9, producer_id=4_712, epoch=9))) is ErrorCode.NONE


def test_batch_of_a_transaction_that_nobody_began_is_refused(cluster: Deployment) -> None:
    topic = cluster.topic()
    assert code(cluster.raw_produce(topic, batch(0))) is ErrorCode.NONE
    # An authorizer, as Kafka's, permits no one a batch of a transaction without a transactional id.
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if cluster.is_secured else ErrorCode.INVALID_TXN_STATE
    assert code(cluster.raw_produce(topic, batch(2, transactional=True))) is refused
    assert code(cluster.raw_produce(topic, batch(2))) is ErrorCode.NONE


def test_what_is_refused_for_another_reason_uses_up_no_sequence(cluster: Deployment) -> None:
    topic = cluster.topic(max_message_bytes="300")
    builder = RecordBatchBuilder()
    builder.append(None, b"x" * 1_000)
    assert code(cluster.raw_produce(topic, batch(0))) is ErrorCode.NONE
    assert code(cluster.raw_produce(topic, builder.build(4_711, 0, 2))) is ErrorCode.MESSAGE_TOO_LARGE
    assert code(cluster.raw_produce(topic, batch(2))) is ErrorCode.NONE


def test_every_producer_id_is_given_once(cluster: Deployment) -> None:
    async def ask() -> set[int]:
        client = cluster.client
        await client.refresh([])
        stub = client.connection(next(iter(client.metadata.brokers))).log
        return {(await stub.InitProducerId(pb.InitProducerIdRequest(), timeout=10)).producer_id for _ in range(20)}

    ids = run_sync(ask(), 30)
    assert len(ids) == 20
    assert min(ids) >= 0


def test_the_producer_numbers_its_batches_without_a_gap(cluster: Deployment) -> None:
    topic = cluster.topic()
    values = [b"%d" % n for n in range(200)]
    delivered = cluster.send(topic, values, batch_num_messages=7, linger_ms=0)
    assert [m.offset() for m in delivered] == list(range(200))
    assert [m.value() for m in cluster.read(topic, 200)] == values
    headers = stored_headers(cluster, topic)
    assert len({h.producer_id for h in headers}) == 1
    assert headers[0].producer_id >= 0
    assert {h.producer_epoch for h in headers} == {0}
    assert [h.base_sequence for h in headers] == [h.base_offset for h in headers]


def test_two_producers_have_their_own_ids(cluster: Deployment) -> None:
    topic = cluster.topic()
    for value in (b"a", b"b"):
        cluster.send(topic, [value])
    assert len({h.producer_id for h in stored_headers(cluster, topic)}) == 2


@pytest.mark.parametrize("config", [{"enable_idempotence": False}, {"acks": "1"}, {"retries": 0}, {"max_in_flight": 6}])
def test_a_producer_without_idempotence_has_no_id(cluster: Deployment, config: dict[str, object]) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"a", b"b"], **config)
    assert {(h.producer_id, h.base_sequence) for h in stored_headers(cluster, topic)} == {(-1, -1)}


def test_a_batch_that_is_refused_for_good_holds_up_no_other_one(cluster: Deployment) -> None:
    topic = cluster.topic(max_message_bytes="1000")
    reports: list[tuple[KafkaError | None, Message]] = []
    values = [b"%d" % n * (600 if n % 10 == 5 else 1) for n in range(40)]
    with cluster.producer(batch_num_messages=1, linger_ms=0) as producer:
        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=lambda e, m: reports.append((e, m)))
        producer.produce(topic, b"x" * 2_000, partition=0, on_delivery=lambda e, m: reports.append((e, m)))
        for value in values:
            producer.produce(topic, value, partition=0, on_delivery=lambda e, m: reports.append((e, m)))
        assert producer.flush(30) == 0
    refused = [m.value() for e, m in reports if e is not None]
    too_long = [v for v in values if len(v) > 1_000]
    assert refused == [*too_long, b"x" * 2_000, *too_long]
    assert {e.code() for e, _ in reports if e is not None} == {KafkaError.MSG_SIZE_TOO_LARGE}
    assert [m.value() for _, m in reports] == [*values, b"x" * 2_000, *values]
    taken = [v for v in values if len(v) <= 1_000] * 2
    assert [m.value() for m in cluster.read(topic, len(taken))] == taken
    assert cluster.end_offset(topic) == len(taken)
