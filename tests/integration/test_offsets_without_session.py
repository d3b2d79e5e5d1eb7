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
DEADLINE_S = 30


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, 1) as started:
        admin = AdminClient({"bootstrap.servers": started.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
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
    """librdkafka takes some errors of OffsetFetch for final, and then never asks for the offset again."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce(TOPIC, b"value")
    asking, reading = consumer_of(cluster), consumer_of(cluster)
    wait_for(lambda: tells_offsets(asking), "the coordinator to tell offsets")
    cluster.controllers[1].pause()
    try:
        wait_for(lambda: not tells_offsets(asking), "the session of the node to end")
        reading.assign([confluent_kafka.TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_STORED)])
        # Long enough for the request to be refused.
        ended = time.monotonic() + 1
        while time.monotonic() < ended:
            reading.poll(0.1)
    finally:
        cluster.controllers[1].resume()
    read: list[bytes | None] = []

    def has_read() -> bool:
        message = reading.poll(0.5)
        if message is not None and message.error() is None:
            read.append(message.value())
        return bool(read)

    wait_for(has_read, "the record")
    assert read == [b"value"]
    asking.close()
    reading.close()
