"""The producer against real nodes that are killed and paused under load: each record is stored once, in order."""

from __future__ import annotations

import random
import time

import pytest
from acknowledged import Load, assert_stored_exactly_once, create_topic, isr_sizes, read_topic, wait_for

from tidelog.testing import LocalCluster

PARTITIONS = 4


def whole(cluster: LocalCluster, topic: str) -> bool:
    return isr_sizes(cluster, topic) == [3] * PARTITIONS


def pause_leader(cluster: LocalCluster, topic: str, load: Load, partition: int) -> None:
    paused = cluster.leader(topic, partition)
    assert paused is not None
    cluster.nodes[paused].pause()
    wait_for(lambda: cluster.leader(topic, partition) not in (paused, None), "another leader")
    load.wait_for_progress(1_000)
    cluster.nodes[paused].resume()
    wait_for(lambda: whole(cluster, topic), "every ISR whole")


@pytest.mark.slow
def test_every_record_is_stored_once_and_in_order_though_leaders_are_killed_again_and_again(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    dice = random.Random(4)
    with Load(cluster.bootstrap_servers, topic, value_size=200, linger_ms=2) as load:
        for round_number in range(4):
            load.wait_for_progress(1_000)
            killed = cluster.leader(topic, round_number)
            assert killed is not None
            time.sleep(dice.random() / 10)
            cluster.nodes[killed].kill()
            load.wait_for_progress(1_000)
            cluster.nodes[killed].start()
            wait_for(lambda: whole(cluster, topic), "every ISR whole")
    assert_stored_exactly_once(load, read_topic(cluster.bootstrap_servers, topic, PARTITIONS))


@pytest.mark.slow
def test_every_record_is_stored_once_and_in_order_though_a_leader_is_paused_and_comes_back(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic, value_size=200, linger_ms=2) as load:
        for round_number in range(2):
            load.wait_for_progress(1_000)
            pause_leader(cluster, topic, load, round_number)
    assert_stored_exactly_once(load, read_topic(cluster.bootstrap_servers, topic, PARTITIONS))


def test_every_record_is_stored_once_and_in_order_though_all_nodes_are_killed_at_once(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic, value_size=200, linger_ms=2) as load:
        load.wait_for_progress(2_000)
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            node.start()
        wait_for(lambda: whole(cluster, topic), "every ISR whole")
        load.wait_for_progress(2_000)
    assert_stored_exactly_once(load, read_topic(cluster.bootstrap_servers, topic, PARTITIONS))
