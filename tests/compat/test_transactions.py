"""Transactional producers of Kafka's clients, on their own and one after another with the same transactional id."""

from __future__ import annotations

import asyncio
import time

import aiokafka
import confluent_kafka
import kafka
import pytest
from compat.clients.all import client
from compat.cluster import Deployment
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 30
PARTITIONS = 3
ROUNDS = 4


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    """A topic of the test."""
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(TIMEOUT_S)
    return name


def read_committed(cluster: Deployment, topic: str, count: int) -> list[bytes]:
    """Return the committed records, sorted, once there are so many and all partitions are read to their ends."""
    settings = {
        "bootstrap.servers": cluster.servers,
        "group.id": f"{topic}-reader",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer, found, ended = confluent_kafka.Consumer(settings), [], set()
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while (len(found) < count or len(ended) < PARTITIONS) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition())
            else:
                found.append(message.value())
    finally:
        consumer.close()
    return sorted(found)


def values(name: str, rounds: range) -> list[bytes]:
    return sorted(f"{name}-{number}-{index}".encode() for number in rounds for index in range(2 * PARTITIONS))


def test_confluent_kafka_commits_and_aborts(cluster: Deployment, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for number in range(2 * ROUNDS):
        producer.begin_transaction()
        for index in range(2 * PARTITIONS):
            producer.produce(topic, f"c-{number}-{index}", partition=index % PARTITIONS)
        producer.flush(TIMEOUT_S)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(TIMEOUT_S)
    committed = sorted(value for number in range(0, 2 * ROUNDS, 2) for value in values("c", range(number, number + 1)))
    assert read_committed(cluster, topic, len(committed)) == committed


def test_newer_confluent_kafka_fences_the_older_one(cluster: Deployment, topic: str) -> None:
    settings = {"bootstrap.servers": cluster.servers, "transactional.id": topic}
    older, newer = confluent_kafka.Producer(settings), confluent_kafka.Producer(settings)
    older.init_transactions(TIMEOUT_S)
    older.begin_transaction()
    older.produce(topic, b"zombie", partition=0)
    older.flush(TIMEOUT_S)
    newer.init_transactions(TIMEOUT_S)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        older.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    newer.begin_transaction()
    newer.produce(topic, b"newer", partition=0)
    newer.commit_transaction(TIMEOUT_S)
    assert read_committed(cluster, topic, 1) == [b"newer"]


def test_kafka_python_commits_and_aborts(cluster: Deployment, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.servers.split(","), transactional_id=topic)
    try:
        producer.init_transactions()
        for number in range(ROUNDS):
            producer.begin_transaction()
            for value in values("p", range(number, number + 1)):
                producer.send(topic, value)
            producer.commit_transaction()
            producer.begin_transaction()
            producer.send(topic, b"aborted")
            producer.flush(TIMEOUT_S)
            producer.abort_transaction()
    finally:
        producer.close(timeout=1)
    committed = values("p", range(ROUNDS))
    assert read_committed(cluster, topic, len(committed)) == committed


def test_aiokafka_commits_and_aborts(cluster: Deployment, topic: str) -> None:
    async def run() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.servers, transactional_id=topic)
        await producer.start()
        try:
            for number in range(ROUNDS):
                async with producer.transaction():
                    for value in values("a", range(number, number + 1)):
                        await producer.send(topic, value)
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"aborted")
                await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())
    committed = values("a", range(ROUNDS))
    assert read_committed(cluster, topic, len(committed)) == committed


@pytest.mark.compat
def test_the_java_client_commits_and_aborts(cluster: Deployment, topic: str) -> None:
    client("java")
    from compat.clients.java import gateway, properties

    serializer = "org.apache.kafka.common.serialization.StringSerializer"
    settings = {"key.serializer": serializer, "value.serializer": serializer, "transactional.id": topic}
    clients = gateway().jvm.org.apache.kafka.clients.producer
    producer = clients.KafkaProducer(properties(cluster.servers, settings))
    try:
        producer.initTransactions()
        for number in range(ROUNDS):
            producer.beginTransaction()
            for value in values("j", range(number, number + 1)):
                producer.send(clients.ProducerRecord(topic, value.decode()))
            producer.commitTransaction()
            producer.beginTransaction()
            producer.send(clients.ProducerRecord(topic, "aborted"))
            producer.flush()
            producer.abortTransaction()
    finally:
        producer.close(gateway().jvm.java.time.Duration.ofSeconds(1))
    committed = values("j", range(ROUNDS))
    assert read_committed(cluster, topic, len(committed)) == committed
