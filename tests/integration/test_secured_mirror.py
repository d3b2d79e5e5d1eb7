"""A mirror between clusters with TLS, passwords and ACLs: it needs certain rights, copies ACLs, and serves HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from authorized_cluster import ROOT, allow, authorized_cluster, settings_of
from certificates import Authority
from mirror_process import RunningMirror
from support.scrapes import Scrape, ask

from tidelog import Consumer, Producer, TopicPartition
from tidelog.admin import AclBinding, AclBindingFilter, AdminClient
from tidelog.testing import FakeCluster

CA = Authority()
USER, PASSWORD, TOPIC, GROUP = "mirror", "a-secret", "orders", "billing"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
RECORDS = 200
RIGHTS_ON_SOURCE = (
    ("TOPIC", "*", ("READ", "DESCRIBE_CONFIGS")),
    ("TOPIC", "mm2-offset-syncs.B.internal", ("CREATE", "WRITE", "DESCRIBE")),
    ("GROUP", "*", ("DESCRIBE",)),
    ("BROKER", "kafka-cluster", ("DESCRIBE",)),
)
RIGHTS_ON_TARGET = (
    ("TOPIC", "*", ("CREATE", "READ", "WRITE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")),
    ("GROUP", "*", ("READ", "DESCRIBE")),
    ("BROKER", "kafka-cluster", ("DESCRIBE", "ALTER")),
)
"""The rights of the mirror's user, as the documentation lists them."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return settings of servers whose Kafka listeners have TLS and passwords; gRPC stays open for the tests."""
    folder = tmp_path_factory.mktemp("stores")
    return {
        "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_SSL,CONTROLLER:GRPC",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "GRPC",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{MODULE} required user_{USER}={PASSWORD};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(CA.issue("node").write_pem(folder / "node.pem")),
    }


@pytest.fixture(scope="module")
def source(secured: dict[str, str]) -> Iterator[FakeCluster]:
    with authorized_cluster(node=secured) as cluster:
        for kind, name, operations in RIGHTS_ON_SOURCE:
            allow(cluster, USER, kind, name, *operations)
        yield cluster


@pytest.fixture(scope="module")
def target(secured: dict[str, str]) -> Iterator[FakeCluster]:
    with authorized_cluster(node=secured) as cluster:
        for kind, name, operations in RIGHTS_ON_TARGET:
            allow(cluster, USER, kind, name, *operations)
        yield cluster


def settings(source: FakeCluster, target: FakeCluster, password: str = PASSWORD) -> dict[str, str]:
    return {
        "clusters": "A, B",
        "A.bootstrap.servers": source.kafka_bootstrap_servers,
        "B.bootstrap.servers": target.kafka_bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required username="{USER}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CA.pem,
        "A->B.enabled": "true",
        "A->B.topics": TOPIC,
        "B->A.emit.heartbeats.enabled": "false",
        "A->B.groups": GROUP,
        "sync.group.offsets.enabled": "true",
    }


def acls_of(cluster: FakeCluster, topic: str) -> set[tuple[str, str, str]]:
    wanted = AclBindingFilter("TOPIC", topic, "LITERAL", None, None, "ANY", "ANY")
    with AdminClient(settings_of(cluster, ROOT)) as admin:
        found: list[AclBinding] = admin.describe_acls(wanted).result(10)
    return {(each.principal, each.operation.name, each.permission_type.name) for each in found}


def committed(cluster: FakeCluster, topic: str) -> int:
    consumer = Consumer({**settings_of(cluster, ROOT), "group.id": GROUP})
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    consumer.close()
    return int(found.offset)


def test_secured_clusters_are_mirrored_with_their_acls(
    source: FakeCluster, target: FakeCluster, tmp_path: Path
) -> None:
    source.create_topic(TOPIC)
    allow(source, "alice", "TOPIC", TOPIC, "READ", "WRITE")
    allow(source, "mallory", "TOPIC", TOPIC, "WRITE", permission="DENY")
    allow(source, "admin", "TOPIC", TOPIC, "ALL")
    with Producer(settings_of(source, ROOT)) as producer:
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number)
    consumer = Consumer({**settings_of(source, ROOT), "group.id": GROUP, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, RECORDS)], asynchronous=False)
    consumer.close()
    own = {
        "metrics.listeners": "HTTPS://127.0.0.1:0",
        "listener.name.https.ssl.keystore.type": "PEM",
        "listener.name.https.ssl.keystore.location": str(
            CA.issue("mirror", ["127.0.0.1"]).write_pem(tmp_path / "mirror.pem")
        ),
        "listener.name.https.ssl.client.auth": "required",
    }
    with RunningMirror({**settings(source, target), **own}) as mirror:
        remote = f"A.{TOPIC}"
        wait_for(lambda: committed(target, remote) >= RECORDS - 100, "the group's offset is not translated")
        # The right to write is not copied, and all rights become the right to read.
        expected = {("User:alice", "READ", "ALLOW"), ("User:mallory", "WRITE", "DENY"), ("User:admin", "READ", "ALLOW")}
        wait_for(lambda: acls_of(target, remote) == expected, "the ACLs are not copied")
        process = mirror.process
        assert process is not None
        assert mirror.worker.failures == 0, "a right is missing"
        url = f"https://127.0.0.1:{process.monitoring_ports['HTTPS']}/metrics"
        stranger, known = (ssl.create_default_context(cadata=CA.pem) for _ in range(2))
        known.load_cert_chain(CA.issue("prometheus").write_pem(tmp_path / "client.pem"))
        status, _, text = ask(url, context=known)
        assert status == 200
        scraped = Scrape(text)
        assert scraped.value("tidelog_mirror_records_total", topic=remote) == RECORDS
        assert scraped.value("tidelog_certificate_expiry_timestamp_seconds", listener="HTTPS") > 0
        with pytest.raises((ssl.SSLError, OSError)):
            ask(url, context=stranger)


def test_mirror_with_a_wrong_password_is_not_ready_and_counts_failures(
    source: FakeCluster, target: FakeCluster
) -> None:
    with RunningMirror(settings(source, target, "wrong")) as mirror:
        wait_for(lambda: mirror.worker.failures > 0, "no failure is counted")
        assert not mirror.worker.is_ready
