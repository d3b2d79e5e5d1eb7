"""Tidelog's own clients whose connections to a node that they know fail because of TLS: each error names the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from acknowledged import wait_for
from certificates import Authority, Issued

from tidelog import Consumer, KafkaError, KafkaException, Producer
from tidelog.admin import AdminClient
from tidelog.aio import AIOProducer
from tidelog.testing import FakeCluster

DEADLINE_S = 20
CA, OTHER = Authority(), Authority("Other")
EXPIRED = "its certificate is not valid: certificate has expired"
HOST = "bootstrap.servers and advertised.listeners must name a host of the certificate"
AUTHORITY = "must name a file with the authority that issued it"
CLIENT = "it may require a certificate of the client"
FAULTS = {
    EXPIRED: (CA.issue("node", valid_for=timedelta(days=-1)), "none"),
    HOST: (CA.issue("node", ("10.9.9.9",)), "none"),
    AUTHORITY: (OTHER.issue("node"), "none"),
    CLIENT: (CA.issue("node"), "required"),
}
EACH = pytest.mark.parametrize("fault", FAULTS, ids=["expired", "host", "authority", "client"])


@dataclass
class Node:
    """A node whose listener has TLS with the certificate that a test chooses."""

    folder: Path
    config: dict[str, str] = field(default_factory=dict)
    cluster: FakeCluster = field(init=False)

    def __post_init__(self) -> None:
        self.config |= {
            "listener.security.protocol.map": "GRPC:GRPC_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC",
            "controller.listener.names": "CONTROLLER",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(CA.write_pem(self.folder / "ca.pem")),
            "ssl.keystore.location": str(CA.issue("node").write_pem(self.folder / "node.pem")),
        }
        self.cluster = FakeCluster(node_config=self.config)

    def client(self, **own: Any) -> dict[str, Any]:
        common = {"bootstrap.servers": self.cluster.bootstrap_servers, "security.protocol": "ssl", "ssl.ca.pem": CA.pem}
        return common | {key.replace("_", "."): value for key, value in own.items()}

    def fail(self, fault: str) -> None:
        """Return from a restart with another certificate."""
        issued, client_auth = FAULTS[fault]
        self._restart(issued, client_auth)

    def mend(self) -> None:
        """Return from a restart with a valid certificate."""
        self._restart(CA.issue("node"), "none")

    def _restart(self, issued: Issued, client_auth: str) -> None:
        self.cluster.stop()
        issued.write_pem(self.folder / "node.pem")
        self.cluster.reconfigure({"listener.name.grpc.ssl.client.auth": client_auth})
        self.cluster.start()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    with found.cluster as cluster:
        cluster.create_topic("t")
        yield found


def of_tls(errors: list[KafkaError]) -> list[KafkaError]:
    """Return the errors of TLS. A client that calls the node while it restarts has an error of its transport before."""
    return [error for error in errors if error.code() == KafkaError._SSL]


@EACH
def test_failure_of_tls_at_a_known_node_is_named_by_reports_and_at_once_by_error_cb(node: Node, fault: str) -> None:
    errors: list[KafkaError] = []
    reports: list[KafkaError | None] = []
    settings = node.client(message_timeout_ms=1_500) | {"error_cb": errors.append}
    with Producer(settings) as producer:
        producer.produce("t", b"first")
        assert producer.flush(DEADLINE_S) == 0
        node.fail(fault)
        producer.produce("t", b"second", on_delivery=lambda error, _: reports.append(error))
        wait_for(lambda: bool(producer.poll(0.01) or of_tls(errors)), "error_cb", DEADLINE_S)
        assert reports == []
        assert producer.flush(DEADLINE_S) == 0
    assert fault in of_tls(errors)[0].str()
    assert not of_tls(errors)[0].fatal()
    [report] = reports
    assert report is not None
    assert report.code() == KafkaError._MSG_TIMED_OUT
    assert fault in report.str()


def test_failure_of_tls_is_named_for_records_whose_topic_is_not_known(node: Node) -> None:
    node.fail(EXPIRED)
    reports: list[KafkaError | None] = []
    with Producer(node.client(message_timeout_ms=800)) as producer:
        producer.produce("t", b"x", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_S) == 0
    [report] = reports
    assert report is not None
    assert EXPIRED in report.str()


@pytest.mark.parametrize("fault", [EXPIRED], ids=["expired"])
def test_failure_of_tls_at_a_known_node_is_named_by_operations_and_consumers(node: Node, fault: str) -> None:
    errors: list[KafkaError] = []
    consuming = node.client(group_id="g", auto_offset_reset="earliest") | {"error_cb": errors.append}
    transactional = node.client(transactional_id="i", transaction_timeout_ms=30_000)
    with AdminClient(node.client()) as admin, Consumer(consuming) as consumer, Producer(transactional) as producer:
        admin.list_topics(timeout=DEADLINE_S)
        consumer.subscribe(["t"])
        wait_for(lambda: bool(consumer.poll(0.05) or consumer.assignment()), "the assignment", DEADLINE_S)
        producer.init_transactions(DEADLINE_S)
        node.fail(fault)
        wait_for(lambda: bool(consumer.poll(0.01) or of_tls(errors)), "error_cb", DEADLINE_S)
        assert fault in of_tls(errors)[0].str()
        described = admin.describe_consumer_groups(["g"], request_timeout=0.6)["g"]
        for fails in (
            lambda: admin.list_topics(timeout=0.6),
            lambda: described.result(DEADLINE_S),
            lambda: consumer.list_topics(timeout=0.6),
            lambda: producer.list_topics(timeout=0.6),
        ):
            with pytest.raises(KafkaException) as failed:
                fails()
            assert fault in failed.value.args[0].str()
            assert failed.value.args[0].code() == KafkaError._SSL
        with pytest.raises(KafkaException) as failed:
            consumer.committed([*consumer.assignment()], timeout=0.6)
        assert fault in failed.value.args[0].str()
        producer.begin_transaction()
        producer.produce("t", b"x")
        with pytest.raises(KafkaException) as failed:
            producer.commit_transaction(0.5)
        assert fault in failed.value.args[0].str()
        node.mend()
        producer.commit_transaction(DEADLINE_S)


def test_failure_of_tls_is_named_by_the_initialization_of_transactions(node: Node) -> None:
    node.fail(EXPIRED)
    with (
        Producer(node.client(transactional_id="i", transaction_timeout_ms=1_000)) as producer,
        pytest.raises(KafkaException) as failed,
    ):
        producer.init_transactions(0.8)
    assert EXPIRED in failed.value.args[0].str()


def test_failure_of_tls_is_named_by_the_producer_for_asyncio(node: Node) -> None:
    node.fail(EXPIRED)

    async def main() -> str:
        async with AIOProducer(node.client(message_timeout_ms=800)) as producer:
            with pytest.raises(KafkaException) as failed:
                await (await producer.produce("t", b"x"))
        return str(failed.value)

    assert EXPIRED in asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_client_without_tls_at_a_known_node_that_requires_it_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path)
    secured = dict(node.config)
    plain = secured | {"listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC"}
    with FakeCluster(node_config=plain) as cluster:
        cluster.create_topic("t")
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.list_topics(timeout=DEADLINE_S)
            cluster.stop()
            cluster.reconfigure(secured)
            cluster.start()
            with pytest.raises(KafkaException, match=r"requires TLS \(security.protocol=ssl or sasl_ssl\)"):
                admin.list_topics(timeout=0.6)
