"""Planned changes of a cluster on Kubernetes lose no acknowledged record and keep no write waiting.

One cluster goes through all of them, with clients in a pod, and some outside of the cluster.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kubernetes_cluster import IMAGE, SMALL, TOGETHER, KubernetesCluster, image, kustomization
from kubernetes_writer import PARTITIONS, TOPIC, Writer

from tidelog import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.compat

NEXT_IMAGE = os.environ.get("TIDELOG_NEXT_IMAGE", f"{IMAGE}-next")
_OUTSIDE = 1_000_000 * PARTITIONS
"""The first number of a client outside of the cluster. A number belongs to the partition number % PARTITIONS."""
_DESCRIBE = """
with AdminClient(servers) as admin:
    resource = ConfigResource(ResourceType.BROKER, sys.argv[1])
    print(admin.describe_configs([resource])[resource].result(60)[sys.argv[2]].value)
"""
_HOSTS = """
with AdminClient(servers) as admin:
    topics = admin.list_topics(timeout=120).topics.values()
print(json.dumps(sorted({n for topic in topics for p in topic.partitions.values() for n in p.replicas})))
"""


class Changes:
    """The cluster, and the changes that were applied to its manifests one after the other."""

    def __init__(self, cluster: KubernetesCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._settings = ""
        self._fields: dict[str, object] = {"patches": [SMALL, TOGETHER]}

    def apply(self, settings: str = "", **fields: object) -> None:
        """Apply the manifests with further settings of nodes, and with fields of the kustomization; keep both."""
        self._settings += settings
        self._fields |= fields
        folder = kustomization(self._folder, "overlays/external", **self._fields)
        properties = folder / "k8s" / "overlays" / "external" / "node.properties"
        properties.write_text(properties.read_text() + self._settings)
        self.cluster.apply(folder)

    def wait(self) -> None:
        """Wait until all pods have their latest template and are ready."""
        for name in ("tidelog-quorum", "tidelog-node"):
            self.cluster.wait_rolled_out(name)


@pytest.fixture(scope="module")
def changes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changes]:
    """The cluster of ``deploy/k8s/overlays/external`` and a client."""
    with KubernetesCluster() as cluster:
        created = Changes(cluster, tmp_path_factory.mktemp("manifests"))
        created.apply()
        created.wait()
        cluster.start_client()
        yield created


@pytest.fixture(scope="module")
def writer(changes: Changes) -> Writer:
    created = Writer(changes.cluster)
    created.create_topic()
    return created


def test_machine_keeps_no_write_waiting_without_a_change(writer: Writer) -> None:
    """The control of the tests below: where it fails, the machines have no cores to spare for these tests."""
    before = writer.read()
    with writer:
        time.sleep(30)
        written = writer.stop()
    writer.check_planned("no change", written, before)


def test_clients_inside_and_outside_write_to_the_same_nodes(changes: Changes, writer: Writer) -> None:
    """A client outside reaches the leader of every partition, over both protocols."""
    former = writer.read()
    with writer:
        inside = writer.stop()
    machine = changes.cluster.kubectl(
        "get", "nodes", "-o", 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}'
    )
    grpc, kafka = f"{machine}:31101,{machine}:31103", f"{machine}:30102"
    with Producer({"bootstrap.servers": grpc}) as producer:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, str(_OUTSIDE + partition), partition=partition)
        assert producer.flush(60) == 0
    sender = confluent_kafka.Producer({"bootstrap.servers": kafka})
    for partition in range(PARTITIONS):
        sender.produce(TOPIC, str(2 * _OUTSIDE + partition), partition=partition)
    assert sender.flush(60) == 0
    expected = sorted([*former, *inside.acknowledged, *(n * _OUTSIDE + p for n in (1, 2) for p in range(PARTITIONS))])
    assert sorted(writer.read()) == expected
    settings = {"group.id": "outside", "enable.partition.eof": True}
    own = Consumer({"bootstrap.servers": grpc, **settings})
    assert sorted(_read(own, TopicPartition)) == expected
    other = confluent_kafka.Consumer({"bootstrap.servers": kafka, **settings})
    assert sorted(_read(other, confluent_kafka.TopicPartition)) == expected


def _read(consumer: Any, partition: type[Any]) -> list[int]:
    """Return all numbers, read with a consumer of either library and its class of partitions."""
    consumer.assign([partition(TOPIC, p, 0) for p in range(PARTITIONS)])
    found, left = [], set(range(PARTITIONS))
    while left:
        message = consumer.poll(60)
        assert message is not None, f"no end of the partitions {left}"
        if message.error():
            left.discard(message.partition())
        else:
            found.append(int(message.value()))
    consumer.close()
    return found


def test_changed_setting_restarts_the_nodes_one_at_a_time(changes: Changes, writer: Writer) -> None:
    before = writer.read()
    with writer:
        changes.apply("log.retention.check.interval.ms=123456\n")
        changes.wait()
        written = writer.stop()
    for node in ("101", "102", "103"):
        assert changes.cluster.run(_DESCRIBE, node, "log.retention.check.interval.ms") == "123456\n"
    writer.check_planned("changed setting", written, before)


def test_upgraded_image_keeps_no_write_waiting(changes: Changes, writer: Writer) -> None:
    """Controllers and nodes are restarted at the same time, as one ``kubectl apply`` does it."""
    before = writer.read()
    with writer:
        changes.apply(images=[image(NEXT_IMAGE)])
        changes.wait()
        written = writer.stop()
    pods = json.loads(changes.cluster.kubectl("get", "pods", "-o", "json", "-l", "app.kubernetes.io/name=tidelog"))
    assert {pod["spec"]["containers"][0]["image"] for pod in pods["items"]} == {NEXT_IMAGE}
    writer.check_planned("upgraded image", written, before)


@pytest.mark.parametrize("name", ["tidelog-node", "tidelog-quorum"])
def test_second_eviction_is_refused_until_the_first_pod_is_back(changes: Changes, writer: Writer, name: str) -> None:
    first, second = ("tidelog-node-101", "tidelog-node-103") if name == "tidelog-node" else (f"{name}-1", f"{name}-3")
    before, cluster = writer.read(), changes.cluster
    former = {pod: cluster.uid(pod) for pod in (first, second)}
    with writer:
        assert cluster.evict(first) == ""
        assert "disruption budget" in cluster.evict(second)
        cluster.wait_for(lambda: cluster.uid(first) not in ("", former[first]), f"another pod {first}")
        cluster.wait_rolled_out(name)
        assert cluster.uid(second) == former[second]
        cluster.wait_for(lambda: cluster.evict(second) == "", f"the eviction of {second}")
        cluster.wait_for(lambda: cluster.uid(second) not in ("", former[second]), f"another pod {second}")
        cluster.wait_rolled_out(name)
        written = writer.stop()
    writer.check_planned(f"evictions of {name}", written, before)


def test_nodes_are_added_and_removed_with_their_replicas(changes: Changes, writer: Writer) -> None:
    before, cluster = writer.read(), changes.cluster
    with writer:
        changes.apply(replicas=[{"name": "tidelog-node", "count": 5}])
        changes.wait()
        cluster.command("cluster", "rebalance", "--execute")
        added = json.loads(cluster.run(_HOSTS))
        for node in ("105", "104"):
            cluster.command("node", "drain", node, "--wait", "--timeout", "60")
        changes.apply(replicas=[{"name": "tidelog-node", "count": 3}])
        changes.wait()
        cluster.wait_for(
            lambda: not {n for n in (104, 105) if cluster.uid(f"tidelog-node-{n}")}, "the end of two nodes"
        )
        for node in ("105", "104"):
            cluster.command("node", "unregister", node, "--yes")
        written = writer.stop()
    assert added == [101, 102, 103, 104, 105]
    assert json.loads(cluster.run(_HOSTS)) == [101, 102, 103]
    writer.check_planned("3 -> 5 -> 3 nodes", written, before)


def test_controllers_are_added_and_get_votes(changes: Changes, writer: Writer) -> None:
    before, cluster = writer.read(), changes.cluster
    with writer:
        changes.apply(components=["k8s/components/five-controllers"])
        changes.wait()
        for controller in ("4", "5"):
            cluster.command("quorum", "add-voter", controller, "--timeout", "60")
        # The new voters count: the cluster goes on while two others restart.
        assert cluster.evict("tidelog-quorum-1") == ""
        cluster.wait_rolled_out("tidelog-quorum")
        written = writer.stop()
    described = json.loads(cluster.command("quorum", "describe", "--json"))
    assert sorted(voter["replica_id"] for voter in described["voters"]) == [1, 2, 3, 4, 5]
    writer.check_planned("3 -> 5 controllers", written, before)
