"""A node's process that is gone is replaced at once, with sessions as long as they are by default; any other is not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from acknowledged import Load, assert_nothing_lost, create_topic, isr_sizes, read_topic, wait_for

from tidelog.testing import LocalCluster

SESSION_S = 9
CONFIG = {"broker.session.timeout.ms": SESSION_S * 1_000, "broker.heartbeat.interval.ms": 2_000}
REPLACED_WITHIN_S = 1.5


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=3, nodes=3, config=CONFIG) as running:
        yield running


def _leader(cluster: LocalCluster, topic: str) -> int:
    leader = cluster.leader(topic, 0)
    assert leader is not None
    return leader


def _times_called_gone(cluster: LocalCluster, node: int) -> int:
    return sum(c.log_path.read_text().count(f"broker {node} is gone") for c in cluster.controllers.values())


def _wait_replaced(cluster: LocalCluster, load: Load, killed: int, deadline: float) -> None:
    """Wait until another node leads, and has acknowledged something."""
    topic = load.topic
    wait_for(lambda: cluster.leader(topic, 0) not in (killed, None), "a new leader", deadline - time.monotonic())
    newest = load.newest[0]
    wait_for(lambda: load.newest[0] > newest, "a record", deadline - time.monotonic())


def test_killed_leader_is_replaced_long_before_its_session_ends_however_often(
    cluster: LocalCluster, topic: str
) -> None:
    create_topic(cluster, topic, 1, 3, min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, topic, records_per_s=500) as load:
        load.wait_for_progress()
        for _ in range(3):
            killed = _leader(cluster, topic)
            deadline = time.monotonic() + REPLACED_WITHIN_S
            cluster.nodes[killed].kill()
            _wait_replaced(cluster, load, killed, deadline)
            cluster.nodes[killed].start()
            # Another process of the same node need not wait for the end of the session either.
            wait_for(lambda: isr_sizes(cluster, topic) == [3], "the ISR whole", SESSION_S)
            load.wait_for_progress(100)
    assert not load.failed
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, topic, 1))


def test_paused_leader_keeps_its_session(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster, topic, 1, 3)
    paused = _leader(cluster, topic)
    cluster.nodes[paused].pause()
    try:
        end = time.monotonic() + REPLACED_WITHIN_S
        while time.monotonic() < end:
            assert cluster.leader(topic, 0) in (paused, None)
            time.sleep(0.05)
    finally:
        cluster.nodes[paused].resume()


def test_stopped_leader_hands_over_and_is_not_taken_for_one_that_is_gone(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster, topic, 1, 3)
    stopped = _leader(cluster, topic)
    before = _times_called_gone(cluster, stopped)
    cluster.nodes[stopped].stop()
    wait_for(lambda: cluster.leader(topic, 0) not in (stopped, None), "another leader")
    assert _times_called_gone(cluster, stopped) == before
