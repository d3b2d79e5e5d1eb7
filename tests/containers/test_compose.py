"""The cluster of ``compose.yaml``: records through it, kills, stops, a memory limit and an upgrade of the image."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import docker
import pytest
from acknowledged import Load, assert_nothing_lost, read_topic, wait_for
from compose_cluster import ComposeCluster

from tidelog import AdminClient, NewTopic
from tidelog.testing.ports import free_ports

REPOSITORY = Path(__file__).parents[2]
NODES = ("node1", "node2", "node3")
CONTROLLERS = ("controller1", "controller2", "controller3")
NODE_MEMORY_MB = 192
PARTITIONS = 6
_TIMEOUT_S = 60.0
pytestmark = pytest.mark.timeout(900)


class Cluster(ComposeCluster):
    """The cluster of ``compose.yaml`` with ports of its own and a small memory limit."""

    def __init__(self, image: str) -> None:
        ports = free_ports(2 * len(NODES))
        names = [f"TIDELOG_{name.upper()}_{kind}" for name in NODES for kind in ("PORT", "KAFKA_PORT")]
        self._ports = dict(zip(names, ports, strict=True))
        variables = {name: str(port) for name, port in self._ports.items()}
        variables |= {"TIDELOG_IMAGE": image, "TIDELOG_NODE_MEMORY": f"{NODE_MEMORY_MB}m"}
        super().__init__(REPOSITORY / "compose.yaml", f"tidelog-test-{uuid.uuid4().hex[:8]}", variables)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{self._ports[f'TIDELOG_{name.upper()}_PORT']}" for name in NODES)

    @property
    def kafka_bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{self._ports[f'TIDELOG_{name.upper()}_KAFKA_PORT']}" for name in NODES)

    def create_topic(self, name: str) -> None:
        with AdminClient({"bootstrap.servers": self.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(_TIMEOUT_S)

    def isr_sizes(self, topic: str) -> list[int]:
        with AdminClient({"bootstrap.servers": self.bootstrap_servers}) as admin:
            found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        return [len(each.isrs) for each in found.values()]

    def leaders(self, topic: str) -> set[int]:
        with AdminClient({"bootstrap.servers": self.bootstrap_servers}) as admin:
            found = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        return {each.leader for each in found.values()}

    def wait_in_sync(self, topic: str) -> None:
        wait_for(lambda: self.isr_sizes(topic) == [3] * PARTITIONS, f"every ISR of {topic} whole")

    def check(self, name: str, script: str, user: str = "") -> None:
        """Assert that a script in the service's container succeeds.

        Its exit code counts, because a busy engine may lose the output of a short command.
        """
        code, output = self.container(name).exec_run(["sh", "-c", script], user=user)
        assert code == 0, f"{name}: {script}: exit code {code}: {output!r}"


@pytest.fixture(scope="module")
def next_image(image: str) -> Iterator[str]:
    """The image with the label of another version."""
    client = docker.from_env(timeout=300)
    tag = f"tidelog:test-{uuid.uuid4().hex[:8]}"
    text = f"FROM {image}\nLABEL org.opencontainers.image.version=0.1.1\n"
    try:
        built, _ = client.images.build(fileobj=io.BytesIO(text.encode()), tag=tag, rm=True)
        yield tag
        client.images.remove(tag, force=True)
        assert built.labels["org.opencontainers.image.version"] == "0.1.1"
    finally:
        client.close()


@pytest.fixture(scope="module")
def cluster(image: str, next_image: str) -> Iterator[Cluster]:
    # After next_image, so that its containers are gone when that is removed.
    with Cluster(image) as started:
        yield started


def test_services_run_without_rights_on_a_root_that_cannot_be_written(cluster: Cluster) -> None:
    for name in (*CONTROLLERS, *NODES):
        # PID 1 is the server.
        cluster.check(name, r"grep -qP '^Uid:(\t10001){4}$' /proc/1/status")
        cluster.check(name, r"test $(grep -cP '^Cap(Inh|Prm|Eff|Bnd|Amb):\t0{16}$' /proc/1/status) = 5")
        cluster.check(name, r"grep -qP '^NoNewPrivs:\t1$' /proc/1/status")
        cluster.check(name, "touch /tmp/x /var/lib/tidelog/x && rm /tmp/x /var/lib/tidelog/x")
        # The folders belong to root, who could write if the file system were writable.
        for folder in ("/", "/opt/tidelog", "/etc/tidelog"):
            cluster.check(name, f"test -d {folder} && ! touch {folder}/x", user="root")


def test_clients_of_kafka_on_the_host_produce_and_consume(cluster: Cluster) -> None:
    cluster.create_topic("kafka")
    settings = {"bootstrap.servers": cluster.kafka_bootstrap_servers, "enable.metrics.push": False}
    producer = confluent_kafka.Producer({**settings, "acks": "all"})
    for number in range(100):
        producer.produce("kafka", str(number).encode())
    assert producer.flush(_TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["kafka"])
        messages = [message for _ in range(100) if (message := consumer.poll(_TIMEOUT_S)) is not None]
    finally:
        consumer.close()
    assert sorted(int(message.value() or b"-1") for message in messages) == list(range(100))


def test_commands_in_the_network_reach_the_cluster_by_the_names_of_services(cluster: Cluster) -> None:
    cluster.check("node2", "tidelog cluster describe --bootstrap-servers node1:9094 > /tmp/described")
    for name in NODES:
        cluster.check("node2", f"grep -q {name}:9094 /tmp/described")


def test_killed_node_returns_with_its_volume_and_no_record_is_lost(cluster: Cluster) -> None:
    cluster.create_topic("killed")
    with Load(cluster.bootstrap_servers, "killed", records_per_s=300) as load:
        load.wait_for_progress(300)
        cluster.container("node1").kill("SIGKILL")
        load.wait_for_progress(300)
        cluster.container("node1").start()
        cluster.wait_healthy("node1")
        load.wait_for_progress(300)
    cluster.wait_in_sync("killed")
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "killed", PARTITIONS))


def test_killed_controller_returns_with_its_volume(cluster: Cluster) -> None:
    cluster.container("controller1").kill("SIGKILL")
    cluster.create_topic("without-a-controller")
    cluster.container("controller1").start()
    cluster.wait_healthy("controller1")


def test_sigterm_moves_leaderships_and_ends_every_server_within_its_grace_period(cluster: Cluster) -> None:
    cluster.create_topic("stopped")
    cluster.wait_in_sync("stopped")
    with Load(cluster.bootstrap_servers, "stopped", records_per_s=300) as load:
        load.wait_for_progress(300)
        for name in ("node2", "controller2"):
            seconds = cluster.stop(name)
            assert seconds < cluster.grace_period_s(name) / 2
            # SIGKILL after the grace period would be 137.
            assert cluster.container(name).attrs["State"]["ExitCode"] == 0
            if name == "node2":
                assert b"Node 102 has stopped" in cluster.container(name).logs(tail=20)
                assert 102 not in cluster.leaders("stopped")
            cluster.container(name).start()
            cluster.wait_healthy(name)
        load.wait_for_progress(300)
    assert not load.failed
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "stopped", PARTITIONS))


def test_nodes_stay_below_their_memory_limit_while_they_store_more_than_it(cluster: Cluster) -> None:
    cluster.create_topic("large")
    size = 25_000
    records = NODE_MEMORY_MB * 1_000_000 * 5 // 4 // size
    started = {name: cluster.container(name).attrs["State"]["StartedAt"] for name in NODES}
    with Load(cluster.bootstrap_servers, "large", records_per_s=1_000, value_size=size) as load:
        wait_for(lambda: len(load.acknowledged) >= records, f"{records} acknowledged records", 240)
    assert not load.failed
    assert load.sent * size > NODE_MEMORY_MB * 2**20
    for name in NODES:
        container = cluster.container(name)
        assert container.attrs["HostConfig"]["Memory"] == NODE_MEMORY_MB * 2**20
        assert not container.attrs["State"]["OOMKilled"]
        assert container.attrs["State"]["StartedAt"] == started[name]
        assert container.stats(stream=False)["memory_stats"]["limit"] == NODE_MEMORY_MB * 2**20
    cluster.wait_in_sync("large")


def test_image_is_upgraded_one_service_at_a_time_without_a_lost_record(cluster: Cluster, next_image: str) -> None:
    cluster.create_topic("upgraded")
    with Load(cluster.bootstrap_servers, "upgraded", records_per_s=200) as load:
        load.wait_for_progress(200)
        for name in (*CONTROLLERS, *NODES):
            cluster.replace(name, next_image)
        load.wait_for_progress(200)
    assert not load.failed
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "upgraded", PARTITIONS))
    labels = {cluster.container(name).labels["org.opencontainers.image.version"] for name in (*CONTROLLERS, *NODES)}
    assert labels == {"0.1.1"}
