"""Committed offsets while a node cannot say whether it still coordinates a group: clients wait and then have them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from tidelog import Producer
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

TOPIC = "t"
PARTITIONS = 2
DEADLINE_S = 30


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, 1) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        yield started


def consumer_of(cluster: LocalCluster) -> confluent_kafka.Consumer:
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    return confluent_kafka.Consumer({"bootstrap.servers": cluster.kafka_bootstrap_servers, **settings})


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what


def tells_offsets(consumer: confluent_kafka.Consumer) -> bool:
    try:
        consumer.committed([confluent_kafka.TopicPartition(TOPIC, 0)], timeout=0.5)
    except confluent_kafka.KafkaException:
        return False
    return True


def test_consumer_of_librdkafka_reads_on_when_the_coordinator_has_its_session_again(cluster: LocalCluster) -> None:
    """librdkafka drops partitions when OffsetFetch is refused and others were assigned since it asked."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"%d" % partition, partition=partition)
    asking, reading = consumer_of(cluster), consumer_of(cluster)
    wait_for(lambda: tells_offsets(asking), "the coordinator to tell offsets")
    cluster.controllers[1].pause()
    try:
        wait_for(lambda: not tells_offsets(asking), "the session of the node to end")
        for partition in range(PARTITIONS):
            reading.incremental_assign([stored(partition)])
            # Long enough for the request to come, and to be refused were it not to wait.
            poll_for(reading, 0.7)
    finally:
        cluster.controllers[1].resume()
    read: set[bytes | None] = set()

    def has_read() -> bool:
        message = reading.poll(0.5)
        if message is not None and message.error() is None:
            read.add(message.value())
        return len(read) == PARTITIONS

    wait_for(has_read, "the records of all partitions")
    assert read == {b"0", b"1"}
    asking.close()
    reading.close()


def stored(partition: int) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(TOPIC, partition, confluent_kafka.OFFSET_STORED)


def poll_for(consumer: confluent_kafka.Consumer, seconds: float) -> None:
    ended = time.monotonic() + seconds
    while time.monotonic() < ended:
        consumer.poll(0.1)
