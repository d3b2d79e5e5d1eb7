"""A cluster in which every connection has TLS: the SDK, replication, the quorum, and certificates that change."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from acknowledged import wait_for
from certificates import Authority

from tidelog import AdminClient, Consumer, KafkaException, Producer
from tidelog.admin import NewTopic, QuorumAdmin
from tidelog.testing import LocalCluster

DEADLINE_S = 30


@dataclass(frozen=True)
class Secured:
    cluster: LocalCluster
    folder: Path
    authority: Authority
    client: dict[str, str]

    def settings(self, **own: Any) -> dict[str, Any]:
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers}
        return {**servers, **self.client} | {key.replace("_", "."): value for key, value in own.items()}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, authority = tmp_path_factory.mktemp("stores"), Authority()
    authority.issue("alice", hosts=()).write_pem(folder / "alice.pem")
    config = {
        "listener.security.protocol.map": "GRPC:GRPC_SSL,GRPC_SSL:GRPC_SSL,PLAINTEXT:SSL",
        "controller.listener.names": "GRPC_SSL",
        "inter.broker.listener.name": "GRPC",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("node").write_pem(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.write_pem(folder / "ca.pem"),
        "ssl.client.auth": "required",
        "min.insync.replicas": "2",
    }
    client = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "alice.pem"),
        "ssl.key.location": str(folder / "alice.pem"),
    }
    with LocalCluster(controllers=3, nodes=2, config=config, client_config=client) as cluster:
        yield Secured(cluster, folder, authority, client)


def test_sdk_produces_to_all_replicas_and_consumes_over_tls(secured: Secured) -> None:
    with AdminClient(secured.settings()) as admin:
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(DEADLINE_S)
    values = [b"%d" % n + bytes(1_000) for n in range(1_000)]
    with Producer(secured.settings(acks="all")) as producer:
        for value in values:
            producer.produce("t", value)
        assert producer.flush(DEADLINE_S) == 0
    found: list[bytes] = []
    with Consumer(secured.settings(group_id="g", auto_offset_reset="earliest")) as consumer:
        consumer.subscribe(["t"])

        def is_read() -> bool:
            found.extend(message.value() for message in consumer.consume(500, 0.5))
            return len(found) == len(values)

        wait_for(is_read, "all records to be read", DEADLINE_S)
    assert found == values


def test_kafka_listener_with_tls_leads_tidelogs_clients_to_grpc(secured: Secured) -> None:
    addresses = ",".join(node.kafka_address for node in secured.cluster.nodes.values())
    with AdminClient(secured.settings(bootstrap_servers=addresses)) as admin:
        assert len(admin.list_topics(timeout=DEADLINE_S).brokers) == 2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"ssl.ca.location": "{other}"}, "its certificate is not valid: ", id="unknown authority"),
        pytest.param(
            {"ssl.certificate.location": None, "ssl.key.location": None}, "require a certificate", id="no cert"
        ),
        pytest.param(
            {"security.protocol": "plaintext"}, r"requires TLS \(security.protocol=ssl or sasl_ssl\)", id="plain text"
        ),
    ],
)
def test_client_that_cannot_connect_with_tls_says_why(
    secured: Secured, change: dict[str, str | None], text: str
) -> None:
    other = str(Authority("Other").write_pem(secured.folder / "other.pem"))
    settings = secured.settings() | {key: other if value == "{other}" else value for key, value in change.items()}
    with AdminClient(settings) as admin, pytest.raises(KafkaException, match=text):
        admin.list_topics(timeout=3)


def test_quorum_replaces_its_leader_over_tls(secured: Secured) -> None:
    leader = secured.cluster.controller_leader()
    assert leader is not None
    secured.cluster.controllers[leader].kill()
    wait_for(lambda: secured.cluster.controller_leader() not in (None, leader), "another leader", DEADLINE_S)
    with AdminClient(secured.settings()) as admin:
        admin.create_topics([NewTopic("after", 1, 2)])["after"].result(DEADLINE_S)
    with QuorumAdmin(secured.settings()) as quorum:
        assert quorum.describe_metadata_quorum().leader_id != leader
    secured.cluster.controllers[leader].start()
    secured.cluster.wait_ready()


def test_changed_certificates_are_used_without_a_restart(secured: Secured) -> None:
    secured.authority.issue("renewed").write_pem(secured.folder / "node.pem")
    node = secured.cluster.nodes[1]
    for port in (node.kafka_address, node.address, secured.cluster.controllers[1].address):
        host, _, number = port.rpartition(":")
        wait_for(lambda at=(host, int(number)): b"renewed" in _certificate(secured, at), "the new one", DEADLINE_S)
    with AdminClient(secured.settings()) as admin:
        assert admin.list_topics(timeout=DEADLINE_S).brokers


def _certificate(secured: Secured, address: tuple[str, int]) -> bytes:
    """Return the certificate that a listener presents, in DER."""
    context = ssl.create_default_context(cafile=secured.folder / "ca.pem")
    context.load_cert_chain(secured.folder / "alice.pem")
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(address) as plain, context.wrap_socket(plain, server_hostname=address[0]) as tls:
        certificate = tls.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate
