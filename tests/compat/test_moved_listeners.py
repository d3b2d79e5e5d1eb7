"""A running cluster moves from an open gRPC listener to one with logins, while clients produce."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import javaproperties
import pytest
from acknowledged import wait_for

from tidelog import AdminClient, Consumer, Producer
from tidelog.admin import NewTopic
from tidelog.testing import LocalCluster

DEADLINE_S = 30
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=a-secret;"
ALICE = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "a-secret",
}
SECURED = {
    "listener.security.protocol.map": "GRPC:GRPC,SECURED:GRPC_SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secured.plain.sasl.jaas.config": JAAS,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def load(settings: dict[str, Any], stored: list[bytes]) -> Iterator[None]:
    """Produce records to topic t in a thread, and add those that are acknowledged to ``stored``."""
    stop = threading.Event()

    def produce() -> None:
        with Producer({**settings, "acks": "all", "message.timeout.ms": 60_000}) as producer:
            count = len(stored)
            while not stop.wait(0.005):
                value = b"%s-%d" % (settings.get("sasl.username", "open").encode(), count)
                count += 1
                producer.produce("t", value, on_delivery=lambda error, m: None if error else stored.append(m.value()))
                producer.poll(0)
            assert producer.flush(DEADLINE_S) == 0

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def restart(cluster: LocalCluster, node_id: int, settings: dict[str, str], is_ready: Callable[[], bool]) -> None:
    node = cluster.nodes[node_id]
    with open(node.properties_path, encoding="utf-8") as file:
        before = javaproperties.load(file)
    assert node.stop() == 0
    node.configure(before | settings)
    node.start()
    wait_for(is_ready, f"node {node_id} to be in sync", DEADLINE_S)


@pytest.mark.compat
def test_cluster_moves_its_clients_from_an_open_to_a_secured_listener_while_it_runs() -> None:
    with LocalCluster(nodes=2) as cluster:
        ports = {node_id: free_port() for node_id in cluster.nodes}
        servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        secured = {"bootstrap.servers": servers, **ALICE}
        opened = {"bootstrap.servers": cluster.bootstrap_servers}

        def in_sync(settings: dict[str, str]) -> Callable[[], bool]:
            def is_ready() -> bool:
                with AdminClient(settings) as admin:
                    metadata = admin.list_topics(timeout=DEADLINE_S)
                return len(metadata.brokers) == 2 and all(
                    len(each.isrs) == 2 for each in metadata.topics["t"].partitions.values()
                )

            return is_ready

        with AdminClient(opened) as admin:
            admin.create_topics([NewTopic("t", 2, 2)])["t"].result(DEADLINE_S)
        stored: list[bytes] = []
        with load(opened, stored):
            for node_id, node in cluster.nodes.items():
                both = f"GRPC://{node.address},SECURED://127.0.0.1:{ports[node_id]},PLAINTEXT://{node.kafka_address}"
                restart(cluster, node_id, {**SECURED, "listeners": both}, in_sync(opened))
        with load(secured, stored):
            for node_id, node in cluster.nodes.items():
                alone = f"SECURED://127.0.0.1:{ports[node_id]},PLAINTEXT://{node.kafka_address}"
                restart(cluster, node_id, {"listeners": alone}, in_sync(secured))
        found: list[bytes] = []
        kafka = ",".join(node.kafka_address for node in cluster.nodes.values())
        with Consumer({**secured, "bootstrap.servers": kafka, "group.id": "g", "auto.offset.reset": "earliest"}) as c:
            c.subscribe(["t"])

            def is_read() -> bool:
                found.extend(message.value() for message in c.consume(500, 0.5))
                return set(stored) <= set(found)

            wait_for(is_read, "all acknowledged records to be read", DEADLINE_S)
        assert len(found) == len(set(found))
