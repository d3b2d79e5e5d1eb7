"""The cluster that the clients are pointed at: Tidelog's, or Apache Kafka's own, which shows what a test should see."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from compat.clients.client import wait_for
from compat.jars import kafka_libs

from tidelog.testing import LocalCluster
from tidelog.testing.local import INTERNAL_PARTITIONS

NODES = 3
_QUICK = {
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 2_000,
    "group.initial.rebalance.delay.ms": 0,
    # Apache Kafka's cluster has as many as ours.
    "offsets.topic.num.partitions": INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": INTERNAL_PARTITIONS,
    "replica.lag.time.max.ms": 3_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
    # Tests write records with times of years ago, which retention would delete beneath their readers.
    "log.retention.check.interval.ms": 24 * 60 * 60 * 1_000,
}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_ATTRIBUTES_AT, _CODEC_BITS = 22, 7


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition as Metadata has it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class Deployment:
    """A running cluster of three nodes, with shorthands for what every test of it does."""

    def __init__(
        self, servers: str, sdk_servers: str | None, data: Path, process: Any, login: Mapping[str, str] | None = None
    ) -> None:
        """``login`` are the settings, beside the servers, with which librdkafka connects to a secured cluster."""
        self.servers = servers
        self.sdk_servers = sdk_servers
        """The addresses of gRPC; None when it is Apache Kafka."""
        self.data = data
        self._process = process
        self.login = dict(login or {})
        self.admin = self._admin_of(servers)

    def create(self, name: str, partitions: int = 1, replicas: int = 1, **config: Any) -> str:
        """Create a topic and wait until every node knows its leaders; returns its name.

        One that does not know it yet says so, and some clients then look again in minutes only.
        """
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = confluent_kafka.admin.NewTopic(name, partitions, replicas, config=settings)
        self.admin.create_topics([topic])[name].result(30)
        for address in self.servers.split(","):
            # A client that is new asks the one node that it knows.
            with self._admin_of(address) as asking:
                wait_for(lambda asking=asking: _has_leaders(asking, name, partitions), f"{address} to know {name}")
        return name

    def close(self) -> None:
        """Close its client."""
        self.admin.__exit__(None, None, None)

    def brokers(self) -> int:
        """Return how many brokers serve, as far as one of them answers."""
        try:
            return len(self.admin.list_topics(timeout=10).brokers)
        except confluent_kafka.KafkaException:
            return 0

    def partition(self, topic: str, partition: int = 0) -> Partition:
        """Return what Metadata says of a partition."""
        found = self.admin.list_topics(topic, timeout=10).topics[topic].partitions[partition]
        return Partition(found.leader, tuple(found.replicas), tuple(found.isrs))

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """Return the high watermark."""
        # A new client knows of no leader that is gone; an old one asks it until its call times out.
        at = confluent_kafka.TopicPartition(topic, partition)
        with self._admin_of(self.servers) as admin:
            [future] = admin.list_offsets({at: confluent_kafka.admin.OffsetSpec.latest()}).values()
            return int(future.result(10).offset)

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """SIGKILL the leader of a partition; returns its id."""
        leader = self.partition(topic, partition).leader
        self._process.kill(leader)
        return leader

    def bring_back(self, node: int, topic: str, partition: int = 0) -> None:
        """Start a node that was killed, and wait until it is in sync with a partition."""
        self._process.restart(node)
        wait_for(lambda: self._is_whole(topic, partition), f"node {node} in sync with {topic}-{partition}")

    def _admin_of(self, servers: str) -> confluent_kafka.admin.AdminClient:
        return confluent_kafka.admin.AdminClient({**self.login, "bootstrap.servers": servers})

    def _is_whole(self, topic: str, partition: int) -> bool:
        found = self.partition(topic, partition)
        return set(found.isr) == set(found.replicas)

    def codecs_on_disk(self, topic: str, partition: int) -> set[str]:
        """Return by what the batches in the partition's log are compressed, on whatever node has it."""
        logs = [path.read_bytes() for path in self.data.rglob(f"{topic}-{partition}/*.log")]
        assert any(logs), f"there is no log of {topic}-{partition} below {self.data}"
        return {_CODECS[attributes & _CODEC_BITS] for log in logs for attributes in _attributes(log)}


def _has_leaders(admin: confluent_kafka.admin.AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return len(found) == partitions and all(p.leader >= 0 for p in found.values())


def _attributes(log: bytes) -> Iterator[int]:
    position = 0
    while position + _ATTRIBUTES_AT < len(log):
        yield log[position + _ATTRIBUTES_AT]
        position += 12 + int.from_bytes(log[position + 8 : position + 12], "big")


class _Tidelog:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def kill(self, node: int) -> None:
        self._cluster.nodes[node].kill()

    def restart(self, node: int) -> None:
        self._cluster.nodes[node].start()


@contextlib.contextmanager
def running(nodes: int = NODES, config: Mapping[str, object] | None = None) -> Iterator[Deployment]:
    """Start a cluster: Tidelog's, or with ``TIDELOG_COMPAT_PEER=kafka`` that of Apache Kafka."""
    peer = os.environ.get("TIDELOG_COMPAT_PEER", "tidelog")
    assert peer in ("tidelog", "kafka"), f"TIDELOG_COMPAT_PEER is tidelog or kafka, not {peer}"
    with (_kafka if peer == "kafka" else _tidelog)(nodes, {**_QUICK, **(config or {})}) as deployment:
        yield deployment


@contextlib.contextmanager
def running_kafka(nodes: int = NODES) -> Iterator[Deployment]:
    """Start a cluster of Apache Kafka, whichever the peer of the run is."""
    with _kafka(nodes, _QUICK) as deployment:
        yield deployment


@contextlib.contextmanager
def running_secured(nodes: int = NODES) -> Iterator[tuple[Deployment, LocalCluster]]:
    """Start a cluster of Tidelog whose clients log in with SCRAM over TLS; the deployment is that of its admin."""
    with LocalCluster(controllers=1, nodes=nodes, config=_QUICK, security="sasl_ssl") as cluster:
        login = cluster.security.client_settings()
        servers = cluster.kafka_bootstrap_servers, cluster.bootstrap_servers
        with contextlib.closing(Deployment(*servers, cluster.data_dir, _Tidelog(cluster), login)) as deployment:
            yield deployment, cluster


@contextlib.contextmanager
def _tidelog(nodes: int, config: Mapping[str, object]) -> Iterator[Deployment]:
    with LocalCluster(controllers=1, nodes=nodes, config=config) as cluster:
        servers = cluster.kafka_bootstrap_servers
        with contextlib.closing(
            Deployment(servers, cluster.bootstrap_servers, cluster.data_dir, _Tidelog(cluster))
        ) as deployment:
            yield deployment


@contextlib.contextmanager
def _kafka(nodes: int, config: Mapping[str, object]) -> Iterator[Deployment]:
    from benchmarks.peers.apache_kafka import ApacheKafka
    from benchmarks.peers.maven import Installation, version_of
    from benchmarks.peers.peer import Size

    libs = kafka_libs()
    version = version_of([path.name for path in libs.glob("*.jar")], libs)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-kafka-")))
        kafka = ApacheKafka(Installation(version, libs), Size(controllers=1, brokers=nodes), folder, config)
        stack.callback(kafka.close)
        kafka.prepare()
        kafka.start()
        deployment = stack.enter_context(contextlib.closing(Deployment(kafka.bootstrap_servers, None, folder, kafka)))
        wait_for(lambda: deployment.brokers() == nodes, kafka.last_words)
        yield deployment
