"""A node whose disk is full lets others lead and nobody wait, long before anybody would think that it lags."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from acknowledged import Load, assert_nothing_lost, isr_sizes, read_topic, wait_for, wait_for_whole_isrs
from replica_files import assert_replicas_equal
from small_disk import SmallDisk

from tidelog import AdminClient, NewTopic
from tidelog.testing import LocalCluster

PATIENT = {"replica.lag.time.max.ms": 120_000, "broker.session.timeout.ms": 60_000}
"""Neither lag nor silence takes anybody out of an ISR here."""
SOON_S = 10.0


@pytest.fixture
def patient_cluster(disk: SmallDisk, start_on_disk: Callable[..., LocalCluster]) -> LocalCluster:
    """Three nodes, of which the first one has its log directory on the small disk."""
    return start_on_disk("node-1/data", 1, 3, PATIENT)


def create(cluster: LocalCluster, replicas: Sequence[int]) -> None:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        new = NewTopic("orders", replica_assignment=[list(replicas)], config={"min.insync.replicas": "2"})
        admin.create_topics([new])["orders"].result(20)
    wait_for_whole_isrs(cluster, "orders", 1)


def check_stored_everywhere(cluster: LocalCluster, load: Load) -> None:
    assert not load.failed, load.failed[:5]
    messages = read_topic(cluster.bootstrap_servers, "orders", 1)
    assert_nothing_lost(load, messages)
    for node in cluster.nodes.values():
        assert node.stop() == 0, node.log_tail()
    assert_replicas_equal(cluster, "orders", [1 + max(m.offset() for m in messages)])


@pytest.mark.parametrize("replicas", [(1, 2, 3), (2, 3, 1)], ids=["leader", "follower"])
def test_replica_on_a_full_disk_is_replaced_at_once_and_comes_back_when_there_is_room(
    disk: SmallDisk, patient_cluster: LocalCluster, replicas: Sequence[int]
) -> None:
    cluster = patient_cluster
    create(cluster, replicas)
    with Load(cluster.bootstrap_servers, "orders", value_size=1000, records_per_s=500) as load:
        load.wait_for_progress(200)
        disk.fill()
        wait_for(lambda: isr_sizes(cluster, "orders") == [2], "the full replica is out of the ISR", SOON_S)
        assert cluster.leader("orders", 0) != 1
        load.wait_for_progress(1_000)
        assert cluster.nodes[1].is_running
        disk.make_room()
        wait_for_whole_isrs(cluster, "orders", 1)
        load.wait_for_progress(200)
    check_stored_everywhere(cluster, load)


def test_partition_below_its_minimum_refuses_records_while_the_disk_of_one_is_full_and_goes_on_afterwards(
    disk: SmallDisk, patient_cluster: LocalCluster
) -> None:
    cluster = patient_cluster
    create(cluster, (1, 2, 3))
    assert cluster.nodes[3].stop() == 0
    wait_for(lambda: isr_sizes(cluster, "orders") == [2], "node 3 has left the ISR", SOON_S)
    with Load(cluster.bootstrap_servers, "orders", value_size=1000, records_per_s=200) as load:
        load.wait_for_progress(100)
        disk.fill()
        wait_for(lambda: cluster.leader("orders", 0) == 2, "node 2 leads alone", SOON_S)
        wait_for(lambda: isr_sizes(cluster, "orders") == [1], "node 1 has left the ISR", SOON_S)
        cluster.nodes[3].start()
        load.wait_for_progress(200)
        disk.make_room()
        wait_for_whole_isrs(cluster, "orders", 1)
    check_stored_everywhere(cluster, load)
