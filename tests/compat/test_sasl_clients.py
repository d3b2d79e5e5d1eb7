"""Kafka's Python clients, unmodified, at listeners with SASL, and the errors of those that are refused."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from acknowledged import wait_for
from certificates import Authority
from compat.java_tools import run

from tidelog.testing import LocalCluster

DEADLINE_S = 30
CA = Authority()
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@dataclass(frozen=True)
class Secured:
    """A cluster of two nodes whose Kafka listeners have SASL; the nodes also log in to each other."""

    cluster: LocalCluster
    protocol: str
    ca: str

    @property
    def log(self) -> str:
        return "".join(node.log_path.read_text() for node in self.cluster.nodes.values())

    def confluent(self, password: str = "wonderland", **settings: Any) -> dict[str, Any]:
        given = {
            "bootstrap.servers": self.cluster.kafka_bootstrap_servers,
            "security.protocol": self.protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        return given | ({"ssl.ca.location": self.ca} if self.protocol == "SASL_SSL" else {})

    def python(self, password: str = "wonderland") -> dict[str, Any]:
        """Return the settings that kafka-python and aiokafka share."""
        return {
            "bootstrap_servers": self.cluster.kafka_bootstrap_servers,
            "security_protocol": self.protocol,
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
            "ssl_context": ssl.create_default_context(cafile=self.ca) if self.protocol == "SASL_SSL" else None,
        }


def sasl_config(protocol: str, folder: Path) -> dict[str, str]:
    return {
        "listener.security.protocol.map": f"GRPC:GRPC,PLAINTEXT:{protocol}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": CA.issue("node").write_pem(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": CA.write_pem(folder / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="node" '
        f'password="node-secret" user_node="node-secret" user_alice="wonderland";',
        "min.insync.replicas": "2",
    }


@pytest.fixture(scope="module", params=["SASL_SSL", pytest.param("SASL_PLAINTEXT", marks=pytest.mark.compat)])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("stores")
    with LocalCluster(controllers=1, nodes=2, config=sasl_config(request.param, folder)) as cluster:
        yield Secured(cluster, request.param, str(folder / "ca.pem"))


def test_confluent_kafka_produces_to_all_replicas_and_consumes_after_a_login(secured: Secured) -> None:
    settings = secured.confluent()
    admin = confluent_kafka.admin.AdminClient(settings)
    admin.create_topics([confluent_kafka.admin.NewTopic("confluent", 1, 2)])["confluent"].result(DEADLINE_S)
    values = [b"%d" % n for n in range(500)]
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


def test_wrong_password_is_a_clear_error_of_the_client_and_in_the_log(secured: Secured) -> None:
    errors: list[str] = []
    own = {"error_cb": lambda error: errors.append(str(error)), "reconnect.backoff.ms": 2_000, "log_level": 0}
    client = confluent_kafka.admin.AdminClient(secured.confluent("canary") | own)

    def is_refused() -> bool:
        client.poll(0.1)
        return bool(errors) and "has failed: unknown user or wrong password" in secured.log

    wait_for(is_refused, "an error of the client, and a line in the log", DEADLINE_S)
    assert "Invalid username or password" in " ".join(errors)
    assert "canary" not in secured.log


@pytest.mark.compat
def test_mechanism_that_is_not_enabled_is_a_clear_error_of_the_client(secured: Secured) -> None:
    errors: list[str] = []
    own = {"error_cb": lambda error: errors.append(str(error)), "sasl.mechanism": "SCRAM-SHA-512", "log_level": 0}
    client = confluent_kafka.admin.AdminClient(secured.confluent() | own)

    def is_refused() -> bool:
        client.poll(0.1)
        return bool(errors) and "the mechanism 'SCRAM-SHA-512' is not enabled" in secured.log

    wait_for(is_refused, "an error of the client, and a line in the log", DEADLINE_S)
    assert "PLAIN" in " ".join(errors)


@pytest.mark.compat
def test_kafka_python_produces_and_consumes_after_a_login(secured: Secured) -> None:
    settings = secured.python()
    producer = kafka.KafkaProducer(**settings)
    for n in range(100):
        producer.send("kafka-python", b"%d" % n).get(DEADLINE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "kafka-python", **settings, auto_offset_reset="earliest", consumer_timeout_ms=DEADLINE_S * 1000
    )
    assert [next(consumer).value for _ in range(100)] == [b"%d" % n for n in range(100)]
    consumer.close()


@pytest.mark.compat
def test_wrong_password_is_in_the_log_of_kafka_python(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """kafka-python retries a failed login until its time ends, and logs the error of each."""
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**secured.python("wrong"), bootstrap_timeout_ms=5_000)
    assert "Invalid username or password" in caplog.text


@pytest.mark.compat
def test_wrong_password_is_an_error_of_aiokafka(secured: Secured) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(**secured.python("wrong"))
        with pytest.raises(aiokafka.errors.KafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(main())


@pytest.mark.compat
def test_aiokafka_produces_and_consumes_after_a_login(secured: Secured) -> None:
    async def main() -> None:
        settings = secured.python()
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for n in range(100):
                await producer.send_and_wait("aiokafka", b"%d" % n)
        consumer = aiokafka.AIOKafkaConsumer("aiokafka", **settings, auto_offset_reset="earliest")
        async with consumer:
            values = [(await asyncio.wait_for(anext(consumer), DEADLINE_S)).value for _ in range(100)]
        assert values == [b"%d" % n for n in range(100)]

    asyncio.run(main())


@pytest.mark.compat
def test_kafkas_shell_tools_log_in_and_name_the_error_of_a_refused_login(secured: Secured, tmp_path: Path) -> None:
    def topics(password: str) -> str:
        settings = {
            "security.protocol": secured.protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": secured.ca,
        }
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        servers = ("--bootstrap-server", secured.cluster.kafka_bootstrap_servers)
        return run("kafka-topics", *servers, "--command-config", str(path), "--list").said

    assert "Error" not in topics("wonderland")
    assert "Authentication failed: Invalid username or password" in topics("wrong")


@pytest.mark.compat
def test_clients_and_nodes_go_on_when_their_sessions_end(tmp_path: Path) -> None:
    config = sasl_config("SASL_SSL", tmp_path) | {"connections.max.reauth.ms": "1500"}
    with LocalCluster(controllers=1, nodes=2, config=config) as cluster:
        secured = Secured(cluster, "SASL_SSL", str(tmp_path / "ca.pem"))
        settings = secured.confluent()
        admin = confluent_kafka.admin.AdminClient(settings)
        admin.create_topics([confluent_kafka.admin.NewTopic("t", 1, 2)])["t"].result(DEADLINE_S)
        failures: list[str] = []
        producer = confluent_kafka.Producer(settings | {"acks": "all", "linger.ms": 0})
        ends = time.monotonic() + 8
        while time.monotonic() < ends:
            producer.produce("t", b"x", on_delivery=lambda error, _: failures.append(str(error)) if error else None)
            producer.flush(DEADLINE_S)
            time.sleep(0.02)
        assert failures == []
        assert "is lost" not in secured.log, "nodes renew their sessions before these end"
        assert "has expired" not in secured.log
