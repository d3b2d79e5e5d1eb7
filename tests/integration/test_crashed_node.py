"""A node's process that is gone is replaced at once, with sessions as long as they are by default; any other is not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from acknowledged import Load, assert_nothing_lost, create_topic, isr_sizes, read_topic, wait_for
from tcp_proxy import TcpProxy

from tidelog.testing import LocalCluster
from tidelog.testing.ports import lease_ports, release_ports
from tidelog.testing.process import Place
from tidelog_foundation.config.process import load_properties

SESSION_S = 9
HEARTBEAT_S = 0.5
"""Shorter than by default: a node that is killed within a heartbeat of an election waits for its session."""
CONFIG = {"broker.session.timeout.ms": SESSION_S * 1_000, "broker.heartbeat.interval.ms": int(HEARTBEAT_S * 1_000)}
REPLACED_WITHIN_S = 4.0
"""It takes a tenth of a second. No session ends as early, and a busy machine is given time."""


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=3, nodes=3, config=CONFIG) as running:
        yield running


def _leader(cluster: LocalCluster, topic: str) -> int:
    wait_for(lambda: cluster.leader(topic, 0) is not None, "a leader")
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
        end = time.monotonic() + SESSION_S / 3
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
    # What is made of the connection that broke is known by then.
    cluster.nodes[stopped].start()
    wait_for(lambda: isr_sizes(cluster, topic) == [3], "the ISR whole", SESSION_S)
    assert _times_called_gone(cluster, stopped) == before


def test_node_that_lives_where_its_listeners_cannot_be_reached_any_more_is_back_at_once() -> None:
    """Fenced once by mistake, as its connection to the controller breaks, it does not wait for its next heartbeat."""
    [port] = leased = lease_ports(1)
    with contextlib.ExitStack() as stack:
        stack.callback(release_ports, leased)
        to_controller = TcpProxy(port)
        stack.callback(to_controller.close)
        config = {
            "controller.quorum.voters": f"1@127.0.0.1:{to_controller.port}",
            "broker.session.timeout.ms": 120_000,
            "broker.heartbeat.interval.ms": 40_000,
        }

        def place(kind: str, number: int) -> Place:
            return Place(port=port) if kind == "controller" else Place()

        cluster = stack.enter_context(LocalCluster(controllers=1, nodes=1, config=config, place=place))
        node, log = cluster.nodes[1], cluster.controllers[1].log_path
        node.stop()
        proxies = [TcpProxy(node.port), TcpProxy(node.kafka_port)]
        for proxy in proxies:
            stack.callback(proxy.close)
        advertised = ",".join(f"{n}://127.0.0.1:{d.port}" for n, d in zip(("GRPC", "PLAINTEXT"), proxies, strict=True))
        node.configure({**load_properties(node.properties_path), "advertised.listeners": advertised})
        node.start()
        cluster.wait_ready()
        create_topic(cluster, "t", 1, 1)
        for proxy in proxies:
            proxy.close()
        lines = len(log.read_text().splitlines())
        to_controller.break_connections()

        def standings() -> list[str]:
            return [line for line in log.read_text().splitlines()[lines:] if "Broker 1 is" in line]

        wait_for(lambda: len(standings()) == 2, "the node fenced and back", 10)
        fenced, back = standings()
        assert "Broker 1 is fenced" in fenced
        assert "Broker 1 is active" in back
        assert _times_called_gone(cluster, 1) == 1
        wait_for(lambda: cluster.leader("t", 0) == 1, "the leader")
