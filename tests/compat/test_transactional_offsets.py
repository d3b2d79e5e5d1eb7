"""Kafka's clients consume, transform and produce exactly once: offsets move with the output of a transaction."""

from __future__ import annotations

import time

import confluent_kafka
import pytest
from compat.clients.transactional import OURS, WRITERS
from compat.cluster import Deployment
from compat.transactions import committed_values, producer, refused, some
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 30
RECORDS = 40
STEP = 10

LEFT = {
    "confluent-kafka": "UNKNOWN_MEMBER_ID",
    "kafka-python": "CommitFailedError",
    "java": "CommitFailedException",
    **dict.fromkeys(OURS, "UNKNOWN_MEMBER_ID"),
}
"""The error of each client that sends offsets for a member that its group does not have."""


@pytest.fixture
def topics(cluster: Deployment, name: str) -> tuple[str, str]:
    """The input of the test, with its records, and its output."""
    names = f"{name}-in", f"{name}-out"
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    for future in admin.create_topics([NewTopic(topic, 1, 3) for topic in names]).values():
        future.result(TIMEOUT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers})
    for number in range(RECORDS):
        producer.produce(names[0], str(number), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return names


def consumer_of(cluster: Deployment, topic: str, group: str) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


def committed_offset(cluster: Deployment, topic: str, group: str) -> int:
    partition = confluent_kafka.TopicPartition(topic, 0)
    settings = {"bootstrap.servers": cluster.servers, "group.id": group, "isolation.level": "read_committed"}
    reader = confluent_kafka.Consumer(settings)
    try:
        [found] = reader.committed([partition], TIMEOUT_S)
    finally:
        reader.close()
    return int(found.offset)


def test_confluent_kafka_moves_offsets_with_the_output(cluster: Deployment, topics: tuple[str, str]) -> None:
    source, sink = topics
    group = f"{source}-group"
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "transactional.id": source})
    producer.init_transactions(TIMEOUT_S)
    done, attempts = 0, 0
    while done < RECORDS:
        consumer = consumer_of(cluster, source, group)
        values = read(consumer, STEP)
        assert values == [str(number).encode() for number in range(done, done + STEP)]
        producer.begin_transaction()
        for value in values:
            producer.produce(sink, value, partition=0)
        positions = [confluent_kafka.TopicPartition(source, 0, done + STEP)]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        attempts += 1
        if attempts % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
            done += STEP
        consumer.close()
        assert committed_offset(cluster, source, group) == (done or confluent_kafka.OFFSET_INVALID)
    reader = consumer_of(cluster, sink, f"{sink}-group")
    assert read(reader, RECORDS) == [str(number).encode() for number in range(RECORDS)]
    reader.close()


@pytest.mark.parametrize("writer", some(WRITERS))
def test_offsets_of_a_transaction_are_seen_with_its_records(
    cluster: Deployment, topics: tuple[str, str], writer: str
) -> None:
    source, sink = topics
    group = f"{source}-group"
    with producer(cluster, writer, source) as made:
        made.init()
        made.begin()
        made.send(sink, b"aborted", 0)
        made.send_offsets(group, {(source, 0): 9})
        made.abort()
        assert committed_offset(cluster, source, group) == confluent_kafka.OFFSET_INVALID
        made.begin()
        made.send(sink, b"committed", 0)
        made.send_offsets(group, {(source, 0): 7})
        made.commit()
        assert committed_offset(cluster, source, group) == 7
    assert committed_values(cluster, sink, 1) == [b"committed"]


@pytest.mark.parametrize("writer", some([name for name in WRITERS if name != "aiokafka"]))
def test_a_member_that_has_left_its_group_cannot_commit_offsets_with_a_transaction(
    cluster: Deployment, topics: tuple[str, str], writer: str
) -> None:
    """KIP-447: a group tells an instance that has lost its partitions by the metadata of the member."""
    source, sink = topics
    group = f"{source}-group"
    with producer(cluster, writer, source) as made:
        made.init()
        former = made.former_member(group, source)
        made.begin()
        made.send(sink, b"of a former member", 0)
        assert refused(lambda: made.send_offsets(group, {(source, 0): 9}, former)) == LEFT[writer]
        made.abort()
    assert committed_offset(cluster, source, group) == confluent_kafka.OFFSET_INVALID
