"""Nodes fetch from each other by the listener that ``inter.broker.listener.name`` names, whatever it speaks.

Which listener that is, is seen from what becomes of followers when the leader cannot be reached by it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import Load, assert_nothing_lost, create_topic, isr_sizes, read_topic, wait_for
from certificates import Authority
from tcp_proxy import TcpProxy

from tidelog import Producer
from tidelog.testing import LocalCluster
from tidelog.testing.ports import free_ports
from tidelog.testing.process import ProcessHandle
from tidelog_foundation.config.process import load_properties

BOTH = {1: 2, 2: 1}
"""The other one of two nodes."""
NAME = "inter.broker.listener.name"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The initial ``inter.broker.listener.name``: the default, unless the test has another."""
    chosen: str = getattr(request, "param", "PLAINTEXT")
    return chosen


@pytest.fixture
def cluster(name: str) -> Iterator[LocalCluster]:
    config = {NAME: name, "min.insync.replicas": "2", "replica.lag.time.max.ms": "1000"}
    with LocalCluster(nodes=2, controllers=1, config=config) as running:
        create_topic(running, "t", 1, 2)
        yield running


def restart(cluster: LocalCluster, node: ProcessHandle, **settings: str | None) -> None:
    """Stop a node and start it with other settings, None to have one no more; wait until the ISR is whole again."""
    properties = load_properties(node.properties_path)
    changed = {key.replace("_", "."): value for key, value in settings.items()}
    node.stop()
    node.configure({key: value for key, value in {**properties, **changed}.items() if value is not None})
    node.start()
    wait_for(lambda: isr_sizes(cluster, "t") == [2], f"the ISR whole after {node.name} has {changed}")


def only_grpc(node: ProcessHandle) -> str:
    return f"GRPC://{node.address}"


def with_kafka(node: ProcessHandle) -> str:
    return f"GRPC://{node.address},PLAINTEXT://{node.kafka_address}"


@pytest.mark.parametrize("name", ["GRPC", "PLAINTEXT"], indirect=True)
def test_follower_that_was_away_catches_up_by_the_named_listener(cluster: LocalCluster) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        producer.produce("t", b"before")
        assert producer.flush(20) == 0
        leader = cluster.leader("t", 0)
        assert leader is not None
        follower = cluster.nodes[BOTH[leader]]
        follower.kill()
        producer.produce("t", b"x" * 500_000)
        follower.start()
        assert producer.flush(30) == 0, "min.insync.replicas is 2: the follower has it"


def test_followers_fetch_where_the_leader_advertises_the_named_listener_and_nowhere_else(
    cluster: LocalCluster,
) -> None:
    """The listener is of a name of its own, and only its advertised address leads to it."""
    proxies = {number: TcpProxy(node.kafka_port) for number, node in cluster.nodes.items()}
    try:
        for number, node in cluster.nodes.items():
            node.stop()
            listeners = f"GRPC://{node.address},INTERNAL://{node.kafka_address}"
            node.configure(
                {
                    **load_properties(node.properties_path),
                    "listeners": listeners,
                    "advertised.listeners": f"GRPC://{node.address},INTERNAL://127.0.0.1:{proxies[number].port}",
                    "listener.security.protocol.map": "GRPC:GRPC,INTERNAL:PLAINTEXT",
                    NAME: "INTERNAL",
                }
            )
        for node in cluster.nodes.values():
            node.start()
        cluster.wait_ready()
        wait_for(lambda: isr_sizes(cluster, "t") == [2], "the ISR whole")
        leader = cluster.leader("t", 0)
        assert leader is not None
        assert proxies[leader].passed > 0
        assert proxies[BOTH[leader]].passed == 0, "nobody fetches from a follower"
        proxies[leader].close()
        with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "1"}) as producer:
            producer.produce("t", b"what the follower does not have")
            assert producer.flush(20) == 0
        wait_for(lambda: isr_sizes(cluster, "t") == [1], "the follower out of the ISR")
    finally:
        for proxy in proxies.values():
            proxy.close()


@pytest.mark.slow
def test_listener_between_nodes_changes_one_node_at_a_time_and_nothing_is_lost(cluster: LocalCluster) -> None:
    """From Kafka's protocol to gRPC, until a node has nothing else, and back, as docs/kafka-clients.md says."""
    first, second = cluster.nodes.values()
    with Load(cluster.bootstrap_servers, "t", records_per_s=500) as load:
        for node in (first, second):
            restart(cluster, node, inter_broker_listener_name="GRPC")
        restart(cluster, first, listeners=only_grpc(first), inter_broker_listener_name=None)
        load.wait_for_progress(100)
        restart(cluster, first, listeners=with_kafka(first), inter_broker_listener_name="GRPC")
        for node in (first, second):
            restart(cluster, node, inter_broker_listener_name=None)
        load.wait_for_progress(100)
    assert not load.failed
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "t", 1))


@pytest.mark.parametrize("name", ["GRPC"], indirect=True)
def test_node_that_others_have_no_listener_for_says_which_it_looked_for(cluster: LocalCluster) -> None:
    """The step of the change that was left out: the others do not have the listener yet."""
    first, second = cluster.nodes.values()
    restart(cluster, second, listeners=only_grpc(second))
    first.stop()
    first.configure({**load_properties(first.properties_path), NAME: "PLAINTEXT"})
    first.start()
    told = f"Node {second.id} has no listener PLAINTEXT (this node's {NAME}), only {only_grpc(second)}"
    wait_for(lambda: told in first.log_path.read_text(), "the reason")
    assert isr_sizes(cluster, "t") == [1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PLAINTEXT"], indirect=True)
def test_open_cluster_becomes_encrypted_one_node_at_a_time_and_nothing_is_lost(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The steps of docs/security.md: a new listener, the other listener between nodes, and no open one."""
    authority, nodes = Authority(), list(cluster.nodes.values())
    stores = {
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": str(authority.issue("node").write_pem(tmp_path / "node.pem")),
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": str(authority.write_pem(tmp_path / "ca.pem")),
        "ssl_client_auth": "required",
    }
    encrypted = {node: f"SSL://127.0.0.1:{port}" for node, port in zip(nodes, free_ports(2), strict=True)}
    with Load(cluster.bootstrap_servers, "t", records_per_s=500) as load:
        for node in nodes:
            restart(cluster, node, listeners=f"{with_kafka(node)},{encrypted[node]}", **stores)
        for node in nodes:
            restart(cluster, node, inter_broker_listener_name="SSL")
        for node in nodes:
            restart(cluster, node, listeners=f"{only_grpc(node)},{encrypted[node]}")
        load.wait_for_progress(100)
    assert not load.failed
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "t", 1))
    for node in nodes:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((node.host, node.kafka_port), timeout=5)
