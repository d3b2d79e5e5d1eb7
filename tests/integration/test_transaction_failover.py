"""Transactions on real processes: committed ones are whole and aborted ones absent, whoever is killed."""

from __future__ import annotations

import time
from collections import Counter

import confluent_kafka
import pytest
from acknowledged import create_topic
from confluent_kafka.admin import AdminClient

from tidelog.testing import LocalCluster
from tidelog.testing.local import INTERNAL_PARTITIONS
from tidelog_node.coordination.internal_topics import partition_for

_PARTITIONS = 3
_ROUNDS = 12
_KILLED_IN = 5
_TIMEOUT_S = 60.0
_ID = "app"


def _leader(cluster: LocalCluster, topic: str, index: int) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap_servers})
    leader: int = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions[index].leader
    return leader


def _write(cluster: LocalCluster, killed: str) -> set[bytes]:
    """Commit every other transaction, kill a node in the midst of one, and return the committed values."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "transactional.id": _ID,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    committed: set[bytes] = set()
    for number in range(_ROUNDS):
        values = [f"{number}-{index}".encode() for index in range(2 * _PARTITIONS)]
        producer.begin_transaction()
        for index, value in enumerate(values):
            producer.produce("t", value, partition=index % _PARTITIONS)
        producer.flush(_TIMEOUT_S)
        if number == _KILLED_IN:
            index = partition_for(_ID, INTERNAL_PARTITIONS) if killed == "__transaction_state" else 0
            cluster.nodes[_leader(cluster, killed, index)].kill()
        if number % 2:
            producer.commit_transaction(_TIMEOUT_S)
            committed.update(values)
        else:
            producer.abort_transaction(_TIMEOUT_S)
    return committed


def _read(cluster: LocalCluster) -> Counter[bytes]:
    """Return the committed values up to the ends of the partitions, which no open transaction may hold back."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: Counter[bytes] = Counter()
    ends = {}
    for index in range(_PARTITIONS):
        partition = confluent_kafka.TopicPartition("t", index, 0)
        ends[index] = consumer.get_watermark_offsets(partition, _TIMEOUT_S)[1]
        consumer.incremental_assign([partition])
    deadline = time.monotonic() + _TIMEOUT_S
    while ends and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            found[message.value()] += 1
        for place in consumer.position([confluent_kafka.TopicPartition("t", index) for index in ends]):
            if place.offset >= ends[place.partition]:
                del ends[place.partition]
    consumer.close()
    assert not ends, f"the last stable offsets stand before {ends}"
    return found


@pytest.mark.parametrize("killed", ["__transaction_state", "t"], ids=["coordinator", "leader"])
def test_transactions_are_whole_when_a_node_is_killed(killed: str) -> None:
    with LocalCluster(controllers=1, nodes=3) as cluster:
        create_topic(cluster, "t", _PARTITIONS, 3)
        committed = _write(cluster, killed)
        found = _read(cluster)
    assert found == Counter(committed)
