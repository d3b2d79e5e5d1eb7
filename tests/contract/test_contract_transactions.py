"""The guarantees of transactions: whole or absent for readers of committed records, with offsets, and fenced."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog import OFFSET_END, OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from tidelog.admin import TransactionState
from tidelog.consumer import ConsumerGroupMetadata
from tidelog.producer import PreparedTransaction
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode

Deployment = Any
NewProducer = Callable[..., Producer]
COMMITTED = pb.ISOLATION_LEVEL_READ_COMMITTED
LATEST = -1
_serial = itertools.count()


@pytest.fixture
def new(cluster: Deployment) -> Iterator[NewProducer]:
    """Return a function that creates a producer with the test's transactional id, initialized unless told otherwise."""
    name = f"contract-{next(_serial)}"
    created: list[Producer] = []

    def producer(*, is_initialized: bool = True, **config: Any) -> Producer:
        each: Producer = cluster.producer(transactional_id=name, **config)
        created.append(each)
        if is_initialized:
            each.init_transactions(30)
        return each

    yield producer
    for each in created:
        each.close(5)


def values(cluster: Deployment, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return the values of partition 0 up to its end."""
    with cluster.consumer(isolation_level=isolation, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(message.value())
        return found


def transact(producer: Producer, topic: str, *contents: str, committed: bool) -> None:
    producer.begin_transaction()
    for content in contents:
        producer.produce(topic, content, partition=0)
    assert producer.flush(30) == 0
    (producer.commit_transaction if committed else producer.abort_transaction)(30)


def test_readers_of_committed_records_get_neither_aborted_nor_open_transactions(
    cluster: Deployment, new: NewProducer
) -> None:
    topic, producer = cluster.topic(), new()
    transact(producer, topic, "a", "b", committed=True)
    transact(producer, topic, "c", committed=False)
    producer.begin_transaction()
    producer.produce(topic, "d", partition=0)
    assert producer.flush(30) == 0
    cluster.send(topic, ["behind"])
    assert values(cluster, topic) == [b"a", b"b"]
    assert values(cluster, topic, "read_uncommitted") == [b"a", b"b", b"c", b"d", b"behind"]
    fetched = cluster.raw_fetch(topic, 0, 10_000, isolation_level=COMMITTED).topics[0].partitions[0]
    # Offsets: a, b, marker, c, marker, d, behind.
    assert (fetched.last_stable_offset, fetched.high_watermark) == (5, 7)
    assert [each.first_offset for each in fetched.aborted_transactions] == [3]
    assert cluster.raw_list_offset(topic, LATEST, isolation_level=COMMITTED).offset == 5
    assert cluster.raw_list_offset(topic, LATEST).offset == 7
    producer.commit_transaction(30)
    assert values(cluster, topic) == [b"a", b"b", b"d", b"behind"]


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 1), ("read_uncommitted", 2)])
def test_consumer_is_told_the_end_and_the_times_of_what_it_can_read(
    cluster: Deployment, new: NewProducer, isolation: str, end: int
) -> None:
    topic, producer = cluster.topic(), new()
    (first,) = cluster.send(topic, ["before"])
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0, timestamp=first.timestamp()[1] + 1_000)
    assert producer.flush(30) == 0
    place = TopicPartition(topic, 0)
    with cluster.consumer(isolation_level=isolation) as consumer:
        assert consumer.get_watermark_offsets(place, 30) == (0, end)
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, first.timestamp()[1] + 1_000)], 30)
        assert found.offset == (OFFSET_END if isolation == "read_committed" else 1)


def test_reader_that_waits_gets_a_transaction_as_soon_as_it_is_committed(cluster: Deployment, new: NewProducer) -> None:
    topic, producer = cluster.topic(), new()
    with cluster.consumer(fetch_wait_max_ms=30_000) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        producer.begin_transaction()
        producer.produce(topic, "late", partition=0)
        assert producer.flush(30) == 0
        assert consumer.poll(0.2) is None
        timer = threading.Timer(0, producer.commit_transaction, (30,))
        timer.start()
        message = consumer.poll(20)
        timer.join()
    assert message is not None
    assert message.value() == b"late"


def test_columns_have_committed_records_alone(cluster: Deployment, new: NewProducer) -> None:
    topic, producer = cluster.topic(), new()
    for committed in (True, False, True):
        producer.begin_transaction()
        producer.produce_batch(topic, [b"x", b"y"] if committed else [b"z"], partition=0)
        (producer.commit_transaction if committed else producer.abort_transaction)(30)
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < 4:
            rows = consumer.consume_arrow(4 - len(found), 30)
            assert rows.num_rows
            found += rows.column("value").to_pylist()
    assert found == [b"x", b"y"] * 2


def committed_offset(consumer: Consumer, topic: str) -> int:
    (position,) = consumer.committed([TopicPartition(topic, 0)], 30)
    return position.offset


def test_offsets_take_effect_with_the_records(cluster: Deployment, new: NewProducer) -> None:
    topic, producer = cluster.topic(), new()
    group = f"{topic}-group"
    metadata = ConsumerGroupMetadata(group, -1, "", None)
    with cluster.consumer(group_id=group) as consumer:
        for end, expected in ((producer.abort_transaction, OFFSET_INVALID), (producer.commit_transaction, 7)):
            producer.begin_transaction()
            producer.produce(topic, "result", partition=0)
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], metadata, 30)
            end(30)
            assert committed_offset(consumer, topic) == expected
    assert values(cluster, topic) == [b"result"]


def test_newer_producer_fences_the_older_one_and_ends_its_transaction(cluster: Deployment, new: NewProducer) -> None:
    topic, older = cluster.topic(), new()
    older.begin_transaction()
    older.produce(topic, "lost", partition=0)
    assert older.flush(30) == 0
    newer = new()
    with pytest.raises(KafkaException) as caught:
        older.commit_transaction(30)
    assert (caught.value.code, caught.value.error.fatal()) == (ErrorCode._FENCED, True)
    transact(newer, topic, "kept", committed=True)
    assert values(cluster, topic) == [b"kept"]


def test_prepared_transaction_is_kept_for_the_next_producer_and_completed_by_its_state(
    cluster: Deployment, new: NewProducer
) -> None:
    topic, two_phase = cluster.topic(), {"transaction_two_phase_commit_enable": True}
    for is_decided, content in ((True, "kept"), (False, "lost")):
        producer = new(**two_phase)
        producer.begin_transaction()
        producer.produce(topic, content, partition=0)
        prepared = str(producer.prepare_transaction(30))
        producer.close()
        successor = new(is_initialized=False, **two_phase)
        successor.init_transactions(30, keep_prepared=True)
        successor.complete_transaction(PreparedTransaction.parse(prepared if is_decided else "1:2"), 30)
    assert values(cluster, topic) == [b"kept"]


def test_open_transaction_is_described_and_ended_by_force(cluster: Deployment, new: NewProducer) -> None:
    topic, producer = cluster.topic(), new()
    place = TopicPartition(topic, 0)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    assert producer.flush(30) == 0
    listed = cluster.admin.list_transactions(states=[TransactionState.ONGOING]).result(30).valid
    names = [line.transactional_id for line in listed]
    found = [each.result(30) for each in cluster.admin.describe_transactions(names).values()]
    (described,) = [each for each in found if place in each.partitions]
    (active,) = cluster.admin.describe_producers([place])[place].result(30)
    assert active.current_transaction_start_offset == 0
    assert active.producer_id == described.producer_id
    cluster.admin.force_terminate_transaction(described.transactional_id).result(30)
    assert values(cluster, topic) == []
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(30)
    assert caught.value.error.fatal()


def test_unknown_transactional_ids_are_not_found_and_not_created(cluster: Deployment) -> None:
    name = "contract-unknown"
    for pending in (
        cluster.admin.describe_transactions([name])[name],
        cluster.admin.force_terminate_transaction(name),
    ):
        with pytest.raises(KafkaException, match="TRANSACTIONAL_ID_NOT_FOUND"):
            pending.result(30)
    assert name not in {line.transactional_id for line in cluster.admin.list_transactions().result(30).valid}
