"""Transactions of both producers on a node in memory, with the versions of the protocol that clients use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog.aio
from tidelog import OFFSET_INVALID, AdminClient, Consumer, KafkaException, Producer, TopicPartition
from tidelog.admin import FeatureUpdate, UpgradeType
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode, KafkaError
from tidelog_foundation.records import RecordBatchBuilder

VERSIONS = (1, 2)
NewProducer = Callable[..., Producer]


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """Return a cluster with each finalized ``transaction.version``."""
    with FakeCluster() as running:
        with AdminClient({"bootstrap.servers": running.bootstrap_servers}) as admin:
            if request.param != 2:
                update = FeatureUpdate(request.param, UpgradeType.SAFE_DOWNGRADE)
                admin.update_features({"transaction.version": update})["transaction.version"].result(10)
        yield running


@pytest.fixture
def topic(cluster: FakeCluster, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", ".").replace("]", "")
    cluster.create_topic(name, 3)
    return name


@pytest.fixture
def new(cluster: FakeCluster, topic: str) -> Iterator[NewProducer]:
    """Return a function that creates an initialized producer of this test's transactional id."""
    created: list[Producer] = []

    def producer(**settings: Any) -> Producer:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}, **settings)
        created.append(producer)
        producer.init_transactions(10)
        return producer

    yield producer
    for each in created:
        each.close(0)


def visible(cluster: FakeCluster, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return the values that a consumer with an isolation level reads, up to the ends of the partitions."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": isolation}
    with Consumer({**settings, "enable.partition.eof": True, "group.id": "reader"}) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        values, ends = [], 0
        while ends < 3:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is None:
                values.append(str(message.value(), "ascii"))
            else:
                assert message.error() == ErrorCode._PARTITION_EOF.code
                ends += 1
        return sorted(values)


def batch_of(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, value, (), 1_700_000_000_000)
    return builder.build()


def test_only_committed_records_are_read(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    reports: list[tuple[bool, str]] = []
    producer = new(on_delivery=lambda error, message: reports.append((error is None, str(message.value(), "ascii"))))
    for name, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction)):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, f"{name}{partition}", partition=partition)
        assert producer.flush(10) == 0
        end(10)
    with producer.transaction():
        producer.produce(topic, "c")
    assert visible(cluster, topic) == ["a0", "a1", "a2", "c"]
    assert visible(cluster, topic, "read_uncommitted") == ["a0", "a1", "a2", "b0", "b1", "b2", "c"]
    assert sorted(value for is_stored, value in reports if is_stored) == ["a0", "a1", "a2", "b0", "b1", "b2", "c"]


def test_open_transaction_is_not_read(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    producer = new()
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(10)
    assert visible(cluster, topic) == []
    producer.commit_transaction(10)
    assert visible(cluster, topic) == ["open"]


def test_fake_cluster_returns_committed_records_alone_on_request(
    cluster: FakeCluster, topic: str, new: NewProducer
) -> None:
    producer = new()
    for value, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction), ("c", None)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(10)
        if end is not None:
            end(10)
    cluster.append(topic, 0, batch_of(b"behind"))

    def found(*, read_committed: bool) -> list[bytes | None]:
        return [record.value for record in cluster.records(topic, 0, read_committed=read_committed)]

    assert found(read_committed=True) == [b"a"]
    assert found(read_committed=False) == [b"a", b"b", b"c", b"behind"]
    producer.commit_transaction(10)
    assert found(read_committed=True) == [b"a", b"c", b"behind"]


def test_open_transaction_survives_a_restart_of_the_node(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    producer = new()
    for value, end in (("kept", producer.commit_transaction), ("lost", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.produce(topic, value, partition=1)
        producer.flush(10)
        cluster.stop()
        cluster.start()
        assert value not in visible(cluster, topic)
        producer.produce(topic, value, partition=2)
        end(20)
    assert visible(cluster, topic) == ["kept"] * 3


def test_exception_in_the_context_aborts_the_transaction(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    producer = new()

    def fail() -> None:
        with producer.transaction():
            producer.produce(topic, "lost")
            producer.flush(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with producer.transaction():
        producer.produce(topic, "kept")
    assert visible(cluster, topic) == ["kept"]


def test_producer_is_fenced_by_a_later_one(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    errors: list[KafkaError] = []
    zombie = new(error_cb=errors.append)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie", partition=0)
    zombie.flush(10)
    heir = new()
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(10)
    assert caught.value.code is ErrorCode._FENCED
    assert caught.value.error.fatal()
    zombie.poll(0)
    assert [(error.error_code(), error.fatal()) for error in errors] == [(ErrorCode._FENCED, True)]
    with heir.transaction():
        heir.produce(topic, "heir", partition=0)
    assert visible(cluster, topic) == ["heir"]


def test_close_aborts_the_open_transaction(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    producer = new()
    producer.begin_transaction()
    producer.produce(topic, "lost", partition=0)
    producer.flush(10)
    assert producer.close(10) == 0
    assert visible(cluster, topic) == []


def test_produce_batch_is_part_of_the_transaction(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    producer = new()
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        written = producer.produce_batch(topic, [b"x", b"y"], partition=1)
        assert len(written.offsets) == 2
        end(10)
    assert visible(cluster, topic) == ["x", "y"]


def test_unknown_partition_fails_the_record_and_not_the_transaction(topic: str, new: NewProducer) -> None:
    producer = new()
    with producer.transaction():
        producer.produce(topic, "known", partition=0)
        producer.flush(10)
        with pytest.raises(KafkaException):
            producer.produce(topic, "unknown", partition=7)


def test_purged_record_makes_the_transaction_abortable(cluster: FakeCluster, topic: str, new: NewProducer) -> None:
    producer = new(linger_ms=60_000)
    producer.begin_transaction()
    producer.produce(topic, "purged", partition=0)
    producer.purge()
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(10)
    assert caught.value.error.txn_requires_abort()
    producer.abort_transaction(10)
    with producer.transaction():
        producer.produce(topic, "kept", partition=0)
    assert visible(cluster, topic) == ["kept"]


def committed(consumer: Consumer, topic: str) -> int:
    """Return the committed offset of partition 0."""
    (position,) = consumer.committed([TopicPartition(topic, 0)], 10)
    return position.offset


@pytest.fixture
def member(cluster: FakeCluster, topic: str) -> Iterator[Consumer]:
    """Return the only member of the test's group, which has read all of the topic's records."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce(topic, "source", partition=0)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "group.protocol": "consumer"}
    with Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False}) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(10) is not None
        yield consumer


def test_offsets_take_effect_with_the_transaction(topic: str, new: NewProducer, member: Consumer) -> None:
    producer = new()
    for end, expected in ((producer.abort_transaction, OFFSET_INVALID), (producer.commit_transaction, 1)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(member.position(member.assignment()), member.consumer_group_metadata(), 10)
        end(10)
        assert committed(member, topic) == expected


def test_offsets_and_records_are_one_transaction(
    cluster: FakeCluster, topic: str, new: NewProducer, member: Consumer
) -> None:
    producer = new()
    with producer.transaction():
        producer.produce(topic, "result", partition=1)
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1, "note")], member.consumer_group_metadata())
    assert committed(member, topic) == 1
    assert visible(cluster, topic) == ["result", "source"]


def test_offsets_of_a_former_member_abort_the_transaction(
    cluster: FakeCluster, topic: str, new: NewProducer, member: Consumer
) -> None:
    producer = new()
    former = member.consumer_group_metadata()
    member.close()
    producer.begin_transaction()
    producer.produce(topic, "result", partition=1)
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], former, 10)
    assert caught.value.error.txn_requires_abort()
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(10)
    assert caught.value.error.txn_requires_abort()
    producer.abort_transaction(10)
    assert visible(cluster, topic) == ["source"]


def test_asyncio_producer_has_transactions(cluster: FakeCluster, topic: str) -> None:
    async def fail(producer: tidelog.aio.Producer) -> None:
        async with producer.transaction():
            await producer.produce(topic, "c", partition=0)
            raise ZeroDivisionError

    async def run() -> None:
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
        async with tidelog.aio.Producer(settings) as producer:
            await producer.init_transactions(10)
            async with producer.transaction():
                await producer.produce(topic, "a", partition=0)
            await producer.begin_transaction()
            delivery = await producer.produce(topic, "b", partition=0)
            await producer.flush()
            assert (await delivery).offset() is not None
            await producer.abort_transaction(10)
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            await producer.begin_transaction()
            await producer.produce(topic, "d", partition=0)
            await producer.commit_transaction(10)

    asyncio.run(run())
    assert visible(cluster, topic) == ["a", "d"]
