"""The coordinator of a group moves between an assignment and the request for its offsets."""

from __future__ import annotations

import time
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from compat.clients.client import wait_for
from compat.cluster import Deployment
from compat.test_groups import produce

import tidelog
from tidelog.admin import AdminClient, ElectionType, NewPartitionReassignment
from tidelog_node.coordination.internal_topics import partition_for
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC

HEARTBEAT_MS = 3_000
RECORDS = 40
DEADLINE_S = 30.0
CLASSIC = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": HEARTBEAT_MS}


def move_coordinator(cluster: Deployment, group: str) -> None:
    """Make another replica the leader of the group's partition of __consumer_offsets; wait until all nodes know it."""
    assert cluster.sdk_servers is not None
    index = partition_for(
        group, len(cluster.admin.list_topics(OFFSETS_TOPIC, timeout=10).topics[OFFSETS_TOPIC].partitions)
    )
    at = tidelog.TopicPartition(OFFSETS_TOPIC, index)
    found = cluster.partition(OFFSETS_TOPIC, index)
    others = [replica for replica in found.replicas if replica != found.leader]
    with AdminClient({"bootstrap.servers": cluster.sdk_servers}) as admin:
        admin.alter_partition_reassignments({at: NewPartitionReassignment([*others, found.leader])})[at].result(10)
        admin.elect_leaders(ElectionType.PREFERRED, [at]).result(10)
    for address in cluster.servers.split(","):
        asking = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
        wait_for(
            lambda asking=asking: (
                asking.list_topics(OFFSETS_TOPIC, timeout=10).topics[OFFSETS_TOPIC].partitions[index].leader
                != found.leader
            ),
            f"{address} to know that {OFFSETS_TOPIC}-{index} has another leader",
        )


def heartbeat_seldom(cluster: Deployment, group: str) -> None:
    """Have the members of a group not hear of another coordinator at once."""
    entry = confluent_kafka.admin.ConfigEntry(
        "consumer.heartbeat.interval.ms",
        str(HEARTBEAT_MS),
        incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
    )
    kind = confluent_kafka.admin.ResourceType.GROUP
    resource = confluent_kafka.admin.ConfigResource(kind, group, incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result(10)


@pytest.mark.parametrize("settings", [{"group.protocol": "consumer"}, CLASSIC], ids=["consumer", "classic"])
def test_librdkafka_reads_on_when_its_coordinator_moves_before_it_asks_for_offsets(
    cluster: Deployment, name: str, settings: dict[str, Any]
) -> None:
    if cluster.sdk_servers is None:
        pytest.skip("librdkafka stands still here with Apache Kafka: confluentinc/librdkafka#5586")
    topic = cluster.create(name, 8, replicas=3)
    expected = produce(cluster, topic, range(RECORDS))
    heartbeat_seldom(cluster, name)
    moved = []

    def assigned(consumer: Any, partitions: list[Any]) -> None:
        if not moved:
            moved.append(True)
            move_coordinator(cluster, name)
        consumer.incremental_assign(partitions)

    base = {"bootstrap.servers": cluster.servers, "group.id": name, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**base, **settings})
    consumer.subscribe([topic], on_assign=assigned)
    read = set()
    deadline = time.monotonic() + DEADLINE_S
    while read != expected:
        assert time.monotonic() < deadline, f"{len(read)} of {len(expected)} records were read"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            read.add(message.value())
    consumer.close()
    assert moved
