"""Consumers that read from the replica in their own rack, on real nodes (KIP-392)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.testing import LocalCluster
from tidelog_foundation.transport import run_sync

TOPIC = "t"


class RackCluster(LocalCluster):
    """Node n is in rack-n, and nodes send consumers to their own rack."""

    def _configure(self, *arguments: Any) -> None:
        super()._configure(*arguments)
        for node_id, node in self.nodes.items():
            with node.properties_path.open("a") as properties:
                properties.write(f"broker.rack=rack-{node_id}\nreplica.selector.class=RackAwareReplicaSelector\n")


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with RackCluster(controllers=1, nodes=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        yield running


def send(cluster: LocalCluster, first: int, count: int) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        for number in range(first, first + count):
            producer.produce(TOPIC, b"%d" % number, partition=0)
        assert producer.flush(30) == 0


def read_from(consumer: Consumer) -> int | None:
    """Return the node that the consumer was sent to, None while it reads from the leader."""
    state = consumer._positions.state(TOPIC, 0)
    assert state is not None
    return state.preferred_node


def test_consumer_reads_from_its_rack_and_goes_back_to_the_leader_when_that_node_dies(cluster: LocalCluster) -> None:
    leader = cluster.leader(TOPIC, 0)
    near = next(node_id for node_id in cluster.nodes if node_id != leader)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.rack": f"rack-{near}", "fetch.wait.max.ms": 100}
    with Consumer(settings) as consumer:
        send(cluster, 0, 50)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        seen = consumer.consume(50, 20)
        deadline = time.monotonic() + 10
        while read_from(consumer) != near and time.monotonic() < deadline:
            consumer.poll(0.05)
        assert read_from(consumer) == near
        send(cluster, 50, 50)
        seen += consumer.consume(50, 20)
        assert read_from(consumer) == near

        cluster.nodes[near].kill()
        send(cluster, 100, 50)
        seen += consumer.consume(50, 20)
        assert read_from(consumer) is None
        metadata = run_sync(consumer._cluster.refresh([TOPIC]))
        assert metadata.partition(TOPIC, 0) is not None
    assert [message.value() for message in seen] == [b"%d" % number for number in range(150)]
