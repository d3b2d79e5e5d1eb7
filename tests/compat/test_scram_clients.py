"""Kafka's clients, unmodified, log in with SCRAM to a cluster that is secured from its first start.

The nodes log in to each other with SCRAM as well, as a user that ``tidelog quorum format`` has created.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
from acknowledged import wait_for
from certificates import Authority
from compat.java_tools import run
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialDeletion
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from tidelog.testing import LocalCluster
from tidelog_foundation.sasl.scram_arguments import parse_new_user
from tidelog_quorum.metadata.records import UserScramCredentialRecord
from tidelog_quorum.server.bootstrap_file import write_bootstrap_records

DEADLINE_S = 30
CA = Authority()
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
FIRST_USERS = (
    "SCRAM-SHA-512=[name=node,password=node-secret]",
    "SCRAM-SHA-256=[name=alice,password=wonderland]",
    "SCRAM-SHA-512=[name=alice,password=wonderland]",
)


@dataclass(frozen=True)
class Secured:
    """A cluster of two nodes whose Kafka listeners have SASL_SSL with SCRAM."""

    cluster: LocalCluster
    ca: str

    @property
    def log(self) -> str:
        return "".join(node.log_path.read_text() for node in self.cluster.nodes.values())

    def confluent(self, user: str = "alice", password: str = "wonderland", **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.kafka_bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": self.ca,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    def python(self, mechanism: str, password: str = "wonderland") -> dict[str, Any]:
        """Return the settings that kafka-python and aiokafka share."""
        return {
            "bootstrap_servers": self.cluster.kafka_bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": "alice",
            "sasl_plain_password": password,
            "ssl_context": ssl.create_default_context(cafile=self.ca),
        }

    def refusal(self, **settings: Any) -> str:
        """Return the error of a client that cannot log in."""
        errors: list[str] = []
        own = {"error_cb": lambda error: errors.append(str(error)), "log_level": 0}
        client = confluent_kafka.admin.AdminClient(self.confluent(**settings) | own)
        wait_for(lambda: client.poll(0.1) is not None and bool(errors), "an error of the client", DEADLINE_S)
        return " ".join(errors)


@contextmanager
def secured_cluster(folder: Path, **config: str) -> Iterator[Secured]:
    settings = {
        "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": CA.issue("node").write_pem(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": CA.write_pem(folder / "ca.pem"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username="node" '
        'password="node-secret";',
        "min.insync.replicas": "2",
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    users = [parse_new_user(text) for text in FIRST_USERS]
    records = [UserScramCredentialRecord.of(user.key, user.credential(user.password or "", b"salt")) for user in users]
    write_bootstrap_records(folder / "data" / "controller-1" / "data", records)
    with LocalCluster(controllers=1, nodes=2, config=settings, data_dir=folder / "data") as cluster:
        yield Secured(cluster, str(folder / "ca.pem"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_cluster(tmp_path_factory.mktemp("scram")) as cluster:
        yield cluster


@pytest.mark.parametrize("mechanism", [pytest.param("SCRAM-SHA-256", marks=pytest.mark.compat), "SCRAM-SHA-512"])
def test_confluent_kafka_produces_to_all_replicas_after_a_login_with_scram(secured: Secured, mechanism: str) -> None:
    settings = secured.confluent(sasl_mechanism=mechanism)
    topic = f"confluent-{mechanism}"
    admin = confluent_kafka.admin.AdminClient(settings)
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 2)])[topic].result(DEADLINE_S)
    producer = confluent_kafka.Producer(settings | {"acks": "all"})
    for n in range(100):
        producer.produce(topic, b"%d" % n)
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    wait_for(lambda: _read(consumer, found) == 100, "all records to be read", DEADLINE_S)
    consumer.close()
    assert found == [b"%d" % n for n in range(100)]


def _read(consumer: confluent_kafka.Consumer, found: list[bytes]) -> int:
    for message in consumer.consume(500, 1.0):
        assert message.error() is None
        found.append(message.value())
    return len(found)


def test_unknown_user_and_wrong_password_are_the_same_error_of_the_client(secured: Secured) -> None:
    refusals = [secured.refusal(password="canary"), secured.refusal(user="nobody", password="canary")]
    for refusal in refusals:
        assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in refusal
    assert "wrong password of user 'alice'" in secured.log
    assert "there is no user 'nobody' with a credential for SCRAM-SHA-512" in secured.log
    assert "canary" not in secured.log


def test_users_are_created_changed_and_deleted_while_the_cluster_runs(secured: Secured) -> None:
    admin = confluent_kafka.admin.AdminClient(secured.confluent())

    def alter(change: confluent_kafka.admin.UserScramCredentialAlteration) -> None:
        admin.alter_user_scram_credentials([change])["bob"].result(DEADLINE_S)

    def brokers(password: str) -> int:
        client = confluent_kafka.admin.AdminClient(secured.confluent("bob", password))
        return len(client.list_topics(timeout=DEADLINE_S).brokers)

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    alter(Upsertion("bob", info, b"first"))
    assert brokers("first") == 2
    alter(Upsertion("bob", info, b"second"))
    assert brokers("second") == 2
    assert "invalid credentials" in secured.refusal(user="bob", password="first")
    alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))
    assert "invalid credentials" in secured.refusal(user="bob", password="second")


@pytest.mark.compat
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_and_aiokafka_log_in_with_scram(
    secured: Secured, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = secured.python(mechanism)
    topic = f"python-{mechanism}"
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"from kafka-python").get(DEADLINE_S)
    producer.close()

    async def values() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**settings) as other:
            await other.send_and_wait(topic, b"from aiokafka")
        async with aiokafka.AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
            return [(await asyncio.wait_for(anext(consumer), DEADLINE_S)).value for _ in range(2)]

    assert sorted(asyncio.run(values())) == [b"from aiokafka", b"from kafka-python"]
    with pytest.raises(kafka.errors.KafkaError):  # it retries until its time ends, and logs the error of each login
        kafka.KafkaAdminClient(**secured.python(mechanism, "wrong"), bootstrap_timeout_ms=3_000)
    assert f"invalid credentials with SASL mechanism {mechanism}" in caplog.text


@pytest.mark.compat
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_shell_tools_log_in_with_scram(secured: Secured, mechanism: str, tmp_path: Path) -> None:
    def topics(password: str) -> str:
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="alice" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": secured.ca,
        }
        path = tmp_path / "client.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        servers = ("--bootstrap-server", secured.cluster.kafka_bootstrap_servers)
        return run("kafka-topics", *servers, "--command-config", str(path), "--list").said

    assert "Exception" not in topics("wonderland")
    assert f"invalid credentials with SASL mechanism {mechanism}" in topics("wrong")


@pytest.mark.compat
def test_deleted_user_stays_connected_until_it_authenticates_again(tmp_path: Path) -> None:
    with secured_cluster(tmp_path, connections_max_reauth_ms="3000") as secured:
        admin = confluent_kafka.admin.AdminClient(secured.confluent())
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        admin.alter_user_scram_credentials([Upsertion("bob", info, b"bob")])["bob"].result(DEADLINE_S)
        errors: list[str] = []
        own = {"error_cb": lambda error: errors.append(str(error)), "log_level": 0}
        bob = confluent_kafka.admin.AdminClient(secured.confluent("bob", "bob") | own)
        assert len(bob.list_topics(timeout=DEADLINE_S).brokers) == 2
        deletion = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
        admin.alter_user_scram_credentials([deletion])["bob"].result(DEADLINE_S)

        def is_refused() -> bool:
            bob.poll(0.1)
            return any("invalid credentials" in error for error in errors)

        wait_for(is_refused, "the end of the session of a deleted user", DEADLINE_S)
        assert len(admin.list_topics(timeout=DEADLINE_S).brokers) == 2, "alice and the nodes go on"
