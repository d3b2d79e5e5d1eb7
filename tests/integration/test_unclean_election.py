"""A replica that may have missed records leads only where a topic allows it, or an operator asks for it (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from acknowledged import read_topic, wait_for
from replica_files import assert_replicas_equal

from tidelog import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.admin import ElectionType
from tidelog.testing import LocalCluster
from tidelog_foundation.errors import ErrorCode


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=2) as running:
        yield running


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


def create(admin: AdminClient, topic: str, **config: str) -> None:
    new = NewTopic(topic, replica_assignment=[[1, 2]], config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([new])[topic].result(20)


def produce(cluster: LocalCluster, topic: str, *values: bytes) -> None:
    errors: list[object] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error), partition=0)
        assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def isr(admin: AdminClient, topic: str) -> list[int]:
    return sorted(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].isrs)


def values(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_topic(cluster.bootstrap_servers, topic, 1)]


def test_replica_that_missed_records_leads_only_where_it_is_allowed_to(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    create(admin, "safe")
    create(admin, "loose", unclean_leader_election_enable="true")
    for topic in ("safe", "loose"):
        produce(cluster, topic, b"both")
    assert cluster.nodes[2].stop() == 0
    for topic in ("safe", "loose"):
        produce(cluster, topic, b"node 1 alone", b"and again")
    cluster.nodes[1].kill()
    cluster.nodes[2].start()

    wait_for(lambda: cluster.leader("loose", 0) == 2, "node 2 leads where it may", 20)
    assert cluster.leader("safe", 0) is None
    produce(cluster, "loose", b"node 2")
    assert values(cluster, "loose") == [b"both", b"node 2"]

    refused = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("safe", 0)]).result(20)
    assert [error.code for error in refused.values() if error is not None] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert cluster.leader("safe", 0) is None
    elected = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("safe", 0)]).result(20)
    assert list(elected.values()) == [None]
    wait_for(lambda: cluster.leader("safe", 0) == 2, "node 2 leads as it was told to", 20)
    produce(cluster, "safe", b"node 2")

    cluster.nodes[1].start()
    for topic in ("safe", "loose"):
        wait_for(lambda topic=topic: isr(admin, topic) == [1, 2], f"node 1 is in sync with {topic}", 20)
        assert values(cluster, topic) == [b"both", b"node 2"]
    for node in cluster.nodes.values():
        assert node.stop() == 0, node.log_tail()
    for topic in ("safe", "loose"):
        assert_replicas_equal(cluster, topic, [2])


def test_replica_that_missed_records_waits_for_the_one_that_has_them(cluster: LocalCluster, admin: AdminClient) -> None:
    create(admin, "safe")
    produce(cluster, "safe", b"both")
    assert cluster.nodes[2].stop() == 0
    produce(cluster, "safe", b"node 1 alone")
    cluster.nodes[1].kill()
    cluster.nodes[2].start()
    wait_for(lambda: cluster.leader("safe", 0) is None, "nobody leads", 20)
    cluster.nodes[1].start()
    wait_for(lambda: cluster.leader("safe", 0) == 1, "node 1 leads again", 20)
    assert values(cluster, "safe") == [b"both", b"node 1 alone"]
