"""There are no transactions: a client that asks for them is told so at once, and does not wait in vain."""

from __future__ import annotations

import time
from collections.abc import Iterator

import confluent_kafka
import kafka
import kafka.errors
import pytest
from compat.clients.all import client
from compat.cluster import Deployment

AT_ONCE_S = 10


@pytest.fixture
def servers(cluster: Deployment) -> Iterator[str]:
    """The addresses; what a test does with them ends at once."""
    if cluster.sdk_servers is None:
        pytest.skip("Apache Kafka has transactions")
    start = time.monotonic()
    yield cluster.servers
    assert time.monotonic() - start < AT_ONCE_S


def test_confluent_kafka_is_told_that_there_are_no_transactions(servers: str, name: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": name})
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.init_transactions(30)
    assert raised.value.args[0].code() != confluent_kafka.KafkaError._TIMED_OUT


def test_kafka_python_is_told_that_there_are_no_transactions(servers: str, name: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers.split(","), transactional_id=name)
    try:
        with pytest.raises(kafka.errors.KafkaError) as raised:
            producer.init_transactions()
        assert not isinstance(raised.value, kafka.errors.KafkaTimeoutError)
    finally:
        producer.close(timeout=1)


@pytest.mark.compat
def test_the_java_client_is_told_that_there_are_no_transactions(servers: str, name: str) -> None:
    client("java")
    from compat.clients.java import gateway, properties
    from py4j.protocol import Py4JJavaError

    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    settings = {"key.serializer": serializer, "value.serializer": serializer, "transactional.id": name}
    producer = gateway().jvm.org.apache.kafka.clients.producer.KafkaProducer(properties(servers, settings))
    try:
        with pytest.raises(Py4JJavaError) as raised:
            producer.initTransactions()
        assert "TimeoutException" not in str(raised.value.java_exception.toString())
    finally:
        producer.close(gateway().jvm.java.time.Duration.ofSeconds(1))
