"""Transactional producers of Kafka's clients find their coordinator and get a producer id."""

from __future__ import annotations

import confluent_kafka
import kafka
import pytest
from compat.clients.all import client
from compat.cluster import Deployment

TIMEOUT_S = 30


def test_confluent_kafka_is_initialized(cluster: Deployment, name: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.servers, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.abort_transaction(TIMEOUT_S)


def test_kafka_python_is_initialized(cluster: Deployment, name: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.servers.split(","), transactional_id=name)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.abort_transaction()
    finally:
        producer.close(timeout=1)


@pytest.mark.compat
def test_the_java_client_is_initialized(cluster: Deployment, name: str) -> None:
    client("java")
    from compat.clients.java import gateway, properties

    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    settings = {"key.serializer": serializer, "value.serializer": serializer, "transactional.id": name}
    producer = gateway().jvm.org.apache.kafka.clients.producer.KafkaProducer(properties(cluster.servers, settings))
    try:
        producer.initTransactions()
        producer.beginTransaction()
        producer.abortTransaction()
    finally:
        producer.close(gateway().jvm.java.time.Duration.ofSeconds(1))
