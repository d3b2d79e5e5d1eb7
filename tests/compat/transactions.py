"""Steps of the tests of transactions, with a client by its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection

import confluent_kafka.admin
import pytest
from compat.clients.all import SDK as SDK_CLIENT
from compat.clients.all import client
from compat.clients.client import Client
from compat.clients.record import Received
from compat.clients.transactional import OURS, SDK, TransactionalProducer, said, transactional
from compat.cluster import Deployment

_TIMEOUT_S = 30
NEXT = set(itertools.pairwise(("confluent-kafka", "kafka-python", "aiokafka", SDK, "confluent-kafka")))
"""The pairs of `make test`: of each client that needs no JVM with another one."""


def pairs(firsts: Collection[str], seconds: Collection[str]) -> list[object]:
    """Return all pairs as a test's parameters; `make test` has those of :data:`NEXT`."""
    return [
        pytest.param(*pair, marks=[] if pair in NEXT else [pytest.mark.compat])
        for pair in itertools.product(firsts, seconds)
    ]


def some(names: Collection[str], cheap: str = SDK) -> list[object]:
    """Return names as a test's parameters; `make test` has the cheap one."""
    return [pytest.param(name, marks=[] if name == cheap else [pytest.mark.compat]) for name in names]


def address(cluster: Deployment, name: str) -> str:
    """Return the servers of a client, which the test skips if it cannot be used here."""
    if name not in OURS:
        client(name)
        return cluster.servers
    if cluster.sdk_servers is None:
        pytest.skip("Apache Kafka has no gRPC")
    return cluster.sdk_servers


def producer(cluster: Deployment, name: str, transactional_id: str, **config: object) -> TransactionalProducer:
    return transactional(name, address(cluster, name), transactional_id, **config)


def reader(name: str) -> Client:
    return SDK_CLIENT if name == SDK else client(name)


def read(
    cluster: Deployment, name: str, topic: str, count: int, partitions: int = 1, isolation: str = "read_committed"
) -> list[Received]:
    """Return ``count`` records from the start of a topic, as a client reads it."""
    return reader(name).consume(address(cluster, name), topic, count, partitions, isolation_level=isolation)


def committed_values(cluster: Deployment, topic: str, count: int) -> list[bytes | None]:
    """Return the first committed values of a topic of one partition."""
    return [record.value for record in read(cluster, "confluent-kafka", topic, count)]


def stable_offset(cluster: Deployment, topic: str) -> int:
    """Return the last stable offset of the first partition."""
    at = confluent_kafka.TopicPartition(topic, 0)
    latest, isolation = confluent_kafka.admin.OffsetSpec.latest(), confluent_kafka.IsolationLevel.READ_COMMITTED
    [future] = cluster.admin.list_offsets({at: latest}, isolation_level=isolation).values()
    return int(future.result(_TIMEOUT_S).offset)


def begin(writer: TransactionalProducer, topic: str, value: bytes) -> None:
    """Begin a transaction that has a record in the first partition."""
    writer.begin()
    writer.send(topic, value, 0)
    writer.flush()


def refused(*steps: Callable[[], None]) -> str:
    """Return the name of the client's error that one of the steps raises."""
    try:
        for step in steps:
            step()
    except Exception as error:  # noqa: BLE001 - each client has its own
        return said(error)
    return "nothing"
