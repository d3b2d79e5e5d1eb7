"""Real processes, real crashes: no acknowledged record is lost."""

from __future__ import annotations

from acknowledged import Load, assert_nothing_lost, create_topic, isr_sizes, read_topic, wait_for

from tidelog.testing import LocalCluster

PARTITIONS = 4


def _check(cluster: LocalCluster, load: Load, topic: str) -> None:
    assert not load.failed, load.failed[:5]
    assert len(load.acknowledged) == load.sent
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, topic, PARTITIONS))


def test_failover_loses_nothing_when_the_leader_node_is_killed_and_started_again(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_progress()
        killed = cluster.leader(topic, 0)
        assert killed is not None
        cluster.nodes[killed].kill()
        load.wait_for_progress(2_000)
        assert cluster.leader(topic, 0) not in (killed, None)
        cluster.nodes[killed].start()
        wait_for(lambda: isr_sizes(cluster, topic) == [3] * PARTITIONS, "every ISR whole")
        load.wait_for_progress()
    _check(cluster, load, topic)


def test_failover_loses_nothing_when_the_controller_leader_is_killed_during_writes(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_progress()
        killed = cluster.controller_leader()
        assert killed is not None
        cluster.controllers[killed].kill()
        load.wait_for_progress()
        wait_for(lambda: cluster.controller_leader() not in (killed, None), "a new leader of the quorum")
        node = cluster.leader(topic, 1)
        assert node is not None
        cluster.nodes[node].kill()
        load.wait_for_progress(2_000)
        cluster.nodes[node].start()
        cluster.controllers[killed].start()
        wait_for(lambda: isr_sizes(cluster, topic) == [3] * PARTITIONS, "every ISR whole")
    _check(cluster, load, topic)


def test_failover_loses_nothing_when_the_leader_node_is_paused_and_comes_back(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_progress()
        paused = cluster.leader(topic, 2)
        assert paused is not None
        cluster.nodes[paused].pause()
        wait_for(lambda: cluster.leader(topic, 2) not in (paused, None), "a new leader of the partition")
        load.wait_for_progress(1_000)
        cluster.nodes[paused].resume()
        wait_for(lambda: isr_sizes(cluster, topic) == [3] * PARTITIONS, "every ISR whole")
    _check(cluster, load, topic)


def test_cluster_keeps_topics_and_records_when_every_process_is_killed_and_started_again(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_progress(2_000)
    for process in (*cluster.controllers.values(), *cluster.nodes.values()):
        process.kill()
    for process in (*cluster.controllers.values(), *cluster.nodes.values()):
        process.start()
    cluster.wait_ready(60)
    wait_for(lambda: isr_sizes(cluster, topic) == [3] * PARTITIONS, "every ISR whole")
    _check(cluster, load, topic)


def test_writes_are_refused_below_min_insync_replicas_and_go_on_afterwards(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster, topic, 1, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic) as load:
        load.wait_for_progress()
        leader = cluster.leader(topic, 0)
        others = [node for node in cluster.nodes.values() if node.id != leader]
        for node in others:
            node.kill()
        wait_for(lambda: isr_sizes(cluster, topic) == [1], "the ISR shrinks to the leader")
        acknowledged = len(load.acknowledged)
        others[0].start()
        load.wait_for_progress()
        assert len(load.acknowledged) > acknowledged
        others[1].start()
        wait_for(lambda: isr_sizes(cluster, topic) == [3], "the ISR whole")
    assert not load.failed
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, topic, 1))
