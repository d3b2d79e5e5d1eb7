"""The clusters that the contract is held against: the fake and, as real processes, the thing itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.cluster import ClusterClient
from tidelog.message import Message
from tidelog.testing import FakeCluster, LocalCluster
from tidelog.transport import run_sync

_serial = itertools.count()


class Deployment:
    """One running cluster, with shorthands for what every test of the contract does."""

    def __init__(self, bootstrap_servers: str, cluster_id: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.cluster_id = cluster_id
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self.client = ClusterClient(bootstrap_servers)

    def close(self) -> None:
        self.admin.close()
        run_sync(self.client.close())

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = f"contract-{next(_serial)}"
        topic = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        self.admin.create_topics([topic])[name].result(30)
        return name

    def producer(self, **config: Any) -> Producer:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({"bootstrap.servers": self.bootstrap_servers, **settings})

    def consumer(self, **config: Any) -> Consumer:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Consumer({"bootstrap.servers": self.bootstrap_servers, **settings})

    def send(self, topic: str, values: list[bytes | str], partition: int = 0, **config: Any) -> list[Message]:
        """Produce values to one partition; returns the delivered messages, all without an error."""
        reports: list[tuple[Any, Message]] = []
        with self.producer(**config) as producer:
            for value in values:
                producer.produce(topic, value, partition=partition, on_delivery=lambda e, m: reports.append((e, m)))
            assert producer.flush(30) == 0
        assert [error for error, _ in reports] == [None] * len(values)
        return [message for _, message in reports]

    def read(self, topic: str, count: int, partition: int = 0, offset: int = 0) -> list[Message]:
        """Return ``count`` messages from ``offset`` on."""
        with self.consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return consumer.consume(count, 30)


@pytest.fixture(scope="module", params=["fake", "local"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    running: Callable[[], Any] = (
        FakeCluster if request.param == "fake" else lambda: LocalCluster(controllers=1, nodes=1)
    )
    with running() as started:
        deployment = Deployment(started.bootstrap_servers, started.cluster_id)
        yield deployment
        deployment.close()
