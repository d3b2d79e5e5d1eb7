"""Throttled replicas are copied no faster than a leader may send or a follower fetch, until the limit goes (KIP-73)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from acknowledged import wait_for

from tidelog import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitionReassignment, ResourceType
from tidelog.testing import LocalCluster

MEGABYTE = 1_000_000
LIMIT = 300_000
RECORD = 100_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=3) as running:
        yield running


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


def fill(cluster: LocalCluster, topic: str, size: int) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        for _ in range(size // RECORD):
            producer.produce(topic, bytes(RECORD), partition=0)
            producer.poll(0)
        assert producer.flush(30) == 0


def set_rate(admin: AdminClient, node: int, side: str, rate: int | None) -> None:
    operation = AlterConfigOpType.DELETE if rate is None else AlterConfigOpType.SET
    entry = ConfigEntry(f"{side}.replication.throttled.rate", None if rate is None else str(rate))
    entry.incremental_operation = operation
    resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def isr(admin: AdminClient, topic: str) -> list[int]:
    return sorted(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].isrs)


@pytest.mark.parametrize(("side", "throttled"), [("leader", 1), ("follower", 2)])
def test_throttled_copy_keeps_to_the_limit_of_its_side_while_the_leader_takes_records_until_the_limit_is_gone(
    cluster: LocalCluster, admin: AdminClient, side: str, throttled: int
) -> None:
    topic = f"by-{side}"
    config = {f"{side}.replication.throttled.replicas": f"0:{throttled}"}
    admin.create_topics([NewTopic(topic, replica_assignment=[[1]], config=config)])[topic].result(20)
    fill(cluster, topic, 6 * MEGABYTE)
    set_rate(admin, throttled, side, LIMIT)
    began_s = time.monotonic()
    partition = TopicPartition(topic, 0)
    admin.alter_partition_reassignments({partition: NewPartitionReassignment([1, 2])})[partition].result(20)
    while (elapsed_s := time.monotonic() - began_s) < 5:
        copied = sum(p.stat().st_size for p in cluster.nodes[2].directory.glob(f"data*/{topic}-0/*.log"))
        # Eleven seconds' worth may come at once after an idle time, and one answer more.
        assert copied <= LIMIT * (elapsed_s + 11) + MEGABYTE, (copied, elapsed_s)
        assert isr(admin, topic) == [1]
        fill(cluster, topic, RECORD)
    assert copied > 0
    set_rate(admin, throttled, side, None)
    wait_for(lambda: isr(admin, topic) == [1, 2], "the copy is whole when nothing limits it", 20)
