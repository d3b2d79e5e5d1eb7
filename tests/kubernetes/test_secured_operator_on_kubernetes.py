"""A secured cluster of the operator: Secrets in cert-manager's layout, clients outside, more controllers, rotation."""

from __future__ import annotations

import base64
import json
import shutil
import ssl
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from certificates import Authority
from kubernetes_cluster import PARTITIONS
from operated_kubernetes import POOL, OperatedCluster, operated_cluster

from tidelog import Producer
from tidelog.admin import AdminClient, NewTopic

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm, which installs the operator"),
]

PASSWORD = "correct horse"
AUTHORITY = Authority()
_ALONE = {
    "controllers": {"default.replication.factor": 1, "min.insync.replicas": 1},
    "nodes": {
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "min.insync.replicas": 1,
    },
}


def secret(role: str, hosts: list[str]) -> dict[str, str]:
    """Return the values of a Secret as cert-manager writes it."""
    issued = AUTHORITY.issue(f"tidelog-{role}", hosts)
    return {"ca.crt": AUTHORITY.pem, "tls.key": issued.key_pem(), "tls.crt": issued.certificate_pem}


class Secured:
    """The cluster ``tidelog``, with one node, and what clients outside of Kubernetes need."""

    def __init__(self, cluster: OperatedCluster) -> None:
        self.cluster = cluster
        self.machine = cluster.kubectl(
            "get", "nodes", "-o", 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}'
        )
        service = f"tidelog.{cluster.namespace}.svc"
        self.node_hosts = [f"*.tidelog-node.{cluster.namespace}.svc", service, self.machine]

    def create(self) -> None:
        controllers = [f"tidelog-quorum-{number}.tidelog-quorum" for number in range(1, 6)]
        self.cluster.create_secret("tidelog-quorum-tls", secret("quorum", controllers))
        self.cluster.create_secret("tidelog-node-tls", secret("node", self.node_hosts))
        self.cluster.create_secret("tidelog-admin", {"password": PASSWORD})
        spec = {
            "controllers": {**POOL, "config": _ALONE["controllers"]},
            "nodes": {**POOL, "replicas": 1, "config": _ALONE["nodes"]},
            "security": {},
            "external": {"type": "NodePort"},
        }
        self.cluster.create("Tidelog", "tidelog", spec)
        self.cluster.wait_ready("tidelog", "tidelog")

    def settings(self, field: str) -> dict[str, Any]:
        """Return the settings of a client outside, for the addresses of a field of the status."""
        return {
            "bootstrap.servers": self.cluster.get("tidelog", "tidelog")["status"][field],
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            "ssl.ca.pem": AUTHORITY.pem,
        }

    def voters(self) -> list[int]:
        """Return the controllers with a vote."""
        found: list[int] = json.loads(self.cluster.run(_VOTERS))
        return found

    def served(self) -> str:
        """Return the certificate that the node presents to Kafka's clients outside."""
        address = self.cluster.get("tidelog", "tidelog")["status"]["externalKafkaBootstrapServers"]
        host, _, port = address.partition(":")
        return ssl.get_server_certificate((host, int(port)), timeout=60)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with operated_cluster() as cluster:
        created = Secured(cluster)
        created.create()
        yield created


def test_clients_outside_log_in_over_both_protocols(secured: Secured) -> None:
    grpc, kafka = (secured.settings(f"external{each}BootstrapServers") for each in ("", "Kafka"))
    assert grpc["bootstrap.servers"].startswith(f"{secured.machine}:")
    with AdminClient(grpc) as admin:
        admin.create_topics([NewTopic("outside", PARTITIONS, 1)])["outside"].result(60)
    with Producer(grpc) as producer:
        for partition in range(PARTITIONS):
            producer.produce("outside", b"grpc", partition=partition)
        assert producer.flush(60) == 0
    sender = confluent_kafka.Producer(kafka)
    for partition in range(PARTITIONS):
        sender.produce("outside", b"kafka", partition=partition)
    assert sender.flush(60) == 0


@pytest.mark.parametrize("count", [5, 3])
def test_quorum_changes_its_voters_with_its_size(secured: Secured, count: int) -> None:
    secured.cluster.patch("tidelog", "tidelog", {"controllers": {"replicas": count}})
    secured.cluster.wait_ready("tidelog", "tidelog")
    assert secured.voters() == list(range(1, count + 1))


def test_new_certificate_is_served_without_a_restart(secured: Secured) -> None:
    before, pods = secured.served(), secured.cluster.revisions("node")
    data = {key: base64.b64encode(text.encode()).decode() for key, text in secret("node", secured.node_hosts).items()}
    secured.cluster.kubectl("patch", "secret", "tidelog-node-tls", "--type=merge", "-p", json.dumps({"data": data}))
    secured.cluster.wait_for(lambda: secured.served() != before, "the new certificate")
    assert secured.cluster.revisions("node") == pods
    secured.cluster.wait_ready("tidelog", "tidelog")


_VOTERS = """
from tidelog.admin.quorum import QuorumAdmin
pem = "/etc/tidelog-tls/tls-combined.pem"
tls = {"ssl.ca.location": "/etc/tidelog-tls/ca.crt", "ssl.certificate.location": pem, "ssl.key.location": pem}
servers = {"bootstrap.controllers": "tidelog-quorum-1.tidelog-quorum:9093", "security.protocol": "ssl", **tls}
with QuorumAdmin(servers) as admin:
    print(json.dumps(sorted(voter.replica_id for voter in admin.describe_metadata_quorum().voters)))
"""
