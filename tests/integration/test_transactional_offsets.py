"""Offsets of transactions on real processes: they move with the output, whoever is killed before the end."""

from __future__ import annotations

import time

import pytest
from acknowledged import create_topic

from tidelog import Consumer, KafkaException, Producer, TopicPartition
from tidelog.testing import LocalCluster
from tidelog.testing.local import INTERNAL_PARTITIONS
from tidelog_node.coordination.internal_topics import partition_for

_TIMEOUT_S = 60.0
_ROUNDS = 3
_OFFSETS_TOPIC = "__consumer_offsets"


def _group_coordinator(cluster: LocalCluster, group: str) -> int:
    leader = cluster.leader(_OFFSETS_TOPIC, partition_for(group, INTERNAL_PARTITIONS))
    assert leader is not None
    return leader


def _end(producer: Producer, *, committed: bool) -> bool:
    """End the transaction, and return whether it was committed."""
    while True:
        try:
            (producer.commit_transaction if committed else producer.abort_transaction)(_TIMEOUT_S)
        except KafkaException as error:
            if error.error.txn_requires_abort():
                committed = False
            elif not error.error.retriable():
                raise
        else:
            return committed


def _committed_offset(cluster: LocalCluster, group: str, topic: str) -> int:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}) as consumer:
        [found] = consumer.committed([TopicPartition(topic, 0)], _TIMEOUT_S)
    return found.offset


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_survive_the_kill_of_the_groups_coordinator(
    cluster: LocalCluster, topic: str, committed: bool
) -> None:
    create_topic(cluster, topic, 1, 3)
    group, expected = f"{topic}-group", 0
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}) as producer:
        producer.init_transactions(_TIMEOUT_S)
        with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}) as consumer:
            metadata = consumer.consumer_group_metadata()
        with producer.transaction():
            producer.produce(topic, "first", partition=0)
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], metadata, _TIMEOUT_S)
        expected = 1
        for number in range(2, 2 + _ROUNDS):
            producer.begin_transaction()
            producer.produce(topic, str(number), partition=0)
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, number)], metadata, _TIMEOUT_S)
            node = cluster.nodes[_group_coordinator(cluster, group)]
            node.kill()
            if _end(producer, committed=committed):
                expected = number
            deadline = time.monotonic() + _TIMEOUT_S
            while (found := _committed_offset(cluster, group, topic)) != expected:
                assert time.monotonic() < deadline, (found, expected)
            node.start()
            cluster.wait_ready()
    assert expected == (1 + _ROUNDS if committed else 1)
