"""Kafka's Python clients, unmodified, at listeners with TLS, and the errors of those that are refused."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from acknowledged import wait_for
from certificates import Authority, Issued

from tidelog.testing import LocalCluster

DEADLINE_S = 30
CA, OTHER_CA = Authority(), Authority("Other CA")


@dataclass(frozen=True)
class Secured:
    """A cluster of two nodes whose Kafka listeners have TLS and require the certificates of clients."""

    cluster: LocalCluster
    folder: Path

    @property
    def servers(self) -> str:
        return self.cluster.kafka_bootstrap_servers

    @property
    def log(self) -> str:
        return "".join(node.log_path.read_text() for node in self.cluster.nodes.values())

    def path_of(self, issued: Issued, name: str) -> str:
        return str(issued.write_pem(self.folder / name))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("stores")
    config = {
        "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": CA.issue("node").write_pem(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": CA.write_pem(folder / "ca.pem"),
        "listener.name.plaintext.ssl.client.auth": "required",
        "min.insync.replicas": "2",
    }
    with LocalCluster(controllers=1, nodes=2, config=config) as cluster:
        yield Secured(cluster, folder)


@pytest.fixture
def alice(secured: Secured) -> str:
    return secured.path_of(CA.issue("alice", hosts=()), "alice.pem")


def confluent(secured: Secured, client: str | None, **settings: Any) -> dict[str, Any]:
    given = {
        "bootstrap.servers": secured.servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.folder / "ca.pem"),
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    return given | ({"ssl.certificate.location": client, "ssl.key.location": client} if client else {})


def test_confluent_kafka_produces_to_all_replicas_and_consumes_over_tls(secured: Secured, alice: str) -> None:
    settings = confluent(secured, alice)
    admin = confluent_kafka.admin.AdminClient(settings)
    topic = confluent_kafka.admin.NewTopic("confluent", 1, 2)
    admin.create_topics([topic])["confluent"].result(DEADLINE_S)
    values = [b"%d" % n + bytes(2_000) for n in range(2_000)]
    producer = confluent_kafka.Producer(settings | {"acks": "all"})
    for value in values:
        producer.produce("confluent", value)
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    found: list[bytes] = []
    wait_for(lambda: _read(consumer, found) == len(values), "all records to be read", DEADLINE_S)
    consumer.close()
    assert found == values


def _read(consumer: confluent_kafka.Consumer, found: list[bytes]) -> int:
    for message in consumer.consume(500, 1.0):
        assert message.error() is None
        found.append(message.value())
    return len(found)


def test_kafka_python_produces_and_consumes_over_tls(secured: Secured, alice: str) -> None:
    settings = {
        "bootstrap_servers": secured.servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(secured.folder / "ca.pem"),
        "ssl_certfile": alice,
        "ssl_keyfile": alice,
    }
    producer = kafka.KafkaProducer(**settings)
    for n in range(100):
        producer.send("kafka-python", b"%d" % n).get(DEADLINE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", **settings, auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000
    )
    assert [next(consumer).value for _ in range(100)] == [b"%d" % n for n in range(100)]
    consumer.close()


def test_aiokafka_produces_and_consumes_over_tls(secured: Secured, alice: str) -> None:
    async def main() -> None:
        context = ssl.create_default_context(cafile=secured.folder / "ca.pem")
        context.load_cert_chain(alice)
        settings: dict[str, Any] = {
            "bootstrap_servers": secured.servers,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for n in range(100):
                await producer.send_and_wait("aiokafka", b"%d" % n)
        consumer = aiokafka.AIOKafkaConsumer("aiokafka", **settings, auto_offset_reset="earliest")
        async with consumer:
            values = [(await asyncio.wait_for(anext(consumer), DEADLINE_S)).value for _ in range(100)]
        assert values == [b"%d" % n for n in range(100)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("client", "said", "logged"),
    [
        pytest.param(None, "certificate", "peer did not return a certificate", id="no certificate"),
        pytest.param(OTHER_CA.issue("alice"), "unknown ca", "unable to get local issuer", id="unknown authority"),
        pytest.param(
            CA.issue("alice", valid_for=timedelta(days=-1)), "expired", "certificate has expired", id="expired"
        ),
    ],
)
def test_client_without_a_valid_certificate_gets_a_clear_error_and_so_does_the_log(
    secured: Secured, client: Issued | None, said: str, logged: str
) -> None:
    path = secured.path_of(client, "refused.pem") if client else None
    assert said in _errors_of(confluent(secured, path), lambda: logged in secured.log)


def test_client_refuses_a_listener_of_another_authority(secured: Secured, alice: str) -> None:
    other = OTHER_CA.write_pem(secured.folder / "other.pem")
    assert "certificate verify failed" in _errors_of(confluent(secured, alice, ssl_ca_location=str(other)))


def test_plain_text_client_is_named_in_the_log(secured: Secured) -> None:
    settings = {"bootstrap.servers": secured.servers}
    assert _errors_of(settings, lambda: "the client does not speak TLS" in secured.log)


def _errors_of(settings: dict[str, Any], is_logged: Callable[[], bool] = lambda: True) -> str:
    """Return the errors that a client reports until a condition holds, in lower case.

    A node logs ten failures in ten seconds, so the client reconnects slowly.
    """
    errors: list[str] = []
    own = {"error_cb": lambda error: errors.append(str(error)), "reconnect.backoff.ms": 2_000, "log_level": 0}
    client = confluent_kafka.admin.AdminClient(settings | own)

    def is_refused() -> bool:
        client.poll(0.1)
        return bool(errors) and is_logged()

    wait_for(is_refused, "an error of the client, and a line in the log", DEADLINE_S)
    return " ".join(errors).lower()


def test_certificate_for_another_host_is_refused_by_clients_and_by_other_nodes(tmp_path: Path) -> None:
    config = {
        "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": CA.issue("node", hosts=["elsewhere.example"]).write_pem(tmp_path / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": CA.write_pem(tmp_path / "ca.pem"),
    }
    with LocalCluster(controllers=1, nodes=1, config=config) as cluster:
        secured = Secured(cluster, tmp_path)
        assert "certificate verify failed" in _errors_of(confluent(secured, None))
        lenient = confluent(secured, None, ssl_endpoint_identification_algorithm="none")
        assert confluent_kafka.admin.AdminClient(lenient).list_topics(timeout=DEADLINE_S).brokers
