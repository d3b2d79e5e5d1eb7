"""A cluster link to an Apache Kafka that requires a login, with and without TLS, and that has ACLs.

A link with the right password and the rights of ``docs/linking.md`` copies the source byte for byte, also after
sessions have ended (KIP-368). A wrong password or mechanism is refused when the link is created, with a text that says
why.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin as kafka_admin
import pytest
from acknowledged import wait_for
from certificates import Authority
from compat.jars import Unavailable, kafka_libs
from replica_files import committed_bytes

from benchmarks.peers.apache_kafka import ApacheKafka
from benchmarks.peers.maven import Installation, version_of
from benchmarks.peers.peer import Size
from tidelog import KafkaException
from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.compat

CA = Authority()
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-512"
MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM: "org.apache.kafka.common.security.scram.ScramLoginModule",
}
NODE, MIRROR, PASSWORD = "node", "mirror", "a secret"
LISTENER = "listener.name.plaintext"
SESSION_MS = 1_500
ITERATIONS = 4_096
PARTITIONS = 2
_READY_S = 90.0
_QUICK = ("-XX:TieredStopAtLevel=1",)
"""The first of the JVM's two compilers alone: it runs for seconds."""


@dataclass(frozen=True, slots=True)
class Source:
    """A secured Apache Kafka."""

    protocol: str
    servers: str
    folder: Path

    def client(self, **settings: object) -> dict[str, Any]:
        """Return the settings of librdkafka for the superuser."""
        login = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol,
            "sasl.mechanism": PLAIN,
            "sasl.username": NODE,
            "sasl.password": PASSWORD,
            "enable.ssl.certificate.verification": False,
        }
        return {**login, "logger": logging.getLogger("librdkafka"), **settings}

    def link(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """Return the settings of a link."""
        login = f'{MODULES[mechanism]} required username="{MIRROR}" password="{password}";'
        settings = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.protocol,
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": login,
            "consumer.offset.sync.enable": "true",
            "consumer.offset.sync.ms": "200",
            "consumer.offset.group.filters": '{"groupFilters": [{"name": "*", "patternType": "LITERAL", '
            '"filterType": "INCLUDE"}]}',
        }
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CA.pem}
        return settings | (trust if self.protocol == "SASL_SSL" else {})


def broker_settings(protocol: str, folder: Path) -> dict[str, object]:
    key = CA.issue(NODE).write_pem(folder / "node.pem")
    tls = {f"{LISTENER}.ssl.keystore.type": "PEM", f"{LISTENER}.ssl.keystore.location": key}
    trust = {
        f"{LISTENER}.ssl.truststore.type": "PEM",
        f"{LISTENER}.ssl.truststore.location": CA.write_pem(folder / "ca.pem"),
    }
    users = f'user_{NODE}="{PASSWORD}" user_{MIRROR}="{PASSWORD}"'
    return {
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
        "sasl.mechanism.inter.broker.protocol": PLAIN,
        f"{LISTENER}.plain.sasl.jaas.config": f'{MODULES[PLAIN]} required username="{NODE}" password="{PASSWORD}" '
        f"{users};",
        f"{LISTENER}.scram-sha-512.sasl.jaas.config": f"{MODULES[SCRAM]} required;",
        f"{LISTENER}.plain.connections.max.reauth.ms": SESSION_MS,
        f"{LISTENER}.scram-sha-512.connections.max.reauth.ms": SESSION_MS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{NODE};User:ANONYMOUS",
        **(tls | trust if protocol == "SASL_SSL" else {}),
    }


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    try:
        libs = kafka_libs()
    except Unavailable as error:
        pytest.skip(str(error))
    installation = Installation(version_of([path.name for path in libs.glob("*.jar")], libs), libs)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidelog-kafka-")))
        settings = broker_settings(request.param, folder)
        kafka = ApacheKafka(installation, Size(1, 1), folder / "kafka", settings, _QUICK)
        stack.callback(kafka.close)
        kafka.prepare()
        kafka.start()
        found = Source(request.param, kafka.bootstrap_servers, folder / "kafka")
        try:
            wait_for(lambda: has_user(found), "the broker does not answer", _READY_S)
        except AssertionError as error:
            error.add_note(kafka.last_words())
            raise
        grant(found)
        yield found


@pytest.fixture(scope="module")
def tidelog() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        yield cluster


def has_user(source: Source) -> bool:
    """Create the link's user in SCRAM; False if the broker does not answer yet."""
    credential = kafka_admin.UserScramCredentialUpsertion(
        MIRROR, kafka_admin.ScramCredentialInfo(kafka_admin.ScramMechanism.SCRAM_SHA_512, ITERATIONS), PASSWORD.encode()
    )
    with kafka_admin.AdminClient(source.client()) as admin:
        try:
            admin.alter_user_scram_credentials([credential], request_timeout=5)[MIRROR].result(10)
        except confluent_kafka.KafkaException:
            return False
    return True


def grant(source: Source) -> None:
    """Give the link's user the rights that ``docs/linking.md`` names."""
    wanted = {
        kafka_admin.ResourceType.TOPIC: ("READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
        kafka_admin.ResourceType.GROUP: ("DESCRIBE",),
    }
    acls = [
        kafka_admin.AclBinding(
            kind,
            "*",
            kafka_admin.ResourcePatternType.LITERAL,
            f"User:{MIRROR}",
            "*",
            kafka_admin.AclOperation[operation],
            kafka_admin.AclPermissionType.ALLOW,
        )
        for kind, operations in wanted.items()
        for operation in operations
    ]
    with kafka_admin.AdminClient(source.client()) as admin:
        for future in admin.create_acls(acls).values():
            future.result(30)


def fill(source: Source, topic: str) -> list[int]:
    """Write transactions, one of them aborted, and idempotent records in compressed batches; return the ends."""
    with kafka_admin.AdminClient(source.client()) as admin:
        topics = [kafka_admin.NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})]
        admin.create_topics(topics)[topic].result(30)
    producer = confluent_kafka.Producer(source.client(**{"transactional.id": topic, "compression.type": "lz4"}))
    producer.init_transactions(30)
    for number in range(5):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            headers = [("number", b"%d" % number)]
            producer.produce(topic, b"%d" % number, b"key", partition, headers=headers, timestamp=1_000 + number)
        producer.abort_transaction(30) if number == 3 else producer.commit_transaction(30)
    more(source, topic)
    return [end(source, topic, partition) for partition in range(PARTITIONS)]


def more(source: Source, topic: str) -> None:
    producer = confluent_kafka.Producer(
        source.client(**{"enable.idempotence": True, "compression.type": "zstd", "linger.ms": 50})
    )
    for number in range(200):
        producer.produce(topic, b"%d" % number * 9, None, number % PARTITIONS)
    producer.flush(30)


def end(source: Source, topic: str, partition: int) -> int:
    consumer = confluent_kafka.Consumer(source.client(**{"group.id": "ends"}))
    try:
        return int(consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=30)[1])
    finally:
        consumer.close()


def are_equal(source: Source, tidelog: LocalCluster, topic: str, ends: list[int]) -> bool:
    """Return whether both replicas have the bytes of the source; False while they lag."""
    for partition, offset in enumerate(ends):
        [folder] = source.folder.rglob(f"run/*/data/{topic}-{partition}")
        expected = committed_bytes(folder, offset)
        for node in tidelog.nodes.values():
            try:
                found = committed_bytes(node.directory / "data" / f"{topic}-{partition}", offset)
            except AssertionError:
                return False
            if found != expected:
                return False
    return True


def commits(source: Source, group: str, topic: str, offset: int) -> bool:
    """Commit an offset on the source; False while its coordinator of groups does not serve yet."""
    consumer = confluent_kafka.Consumer(source.client(**{"group.id": group}))
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    finally:
        consumer.close()
    return True


def committed(tidelog: LocalCluster, group: str, topic: str) -> int:
    settings = {"bootstrap.servers": tidelog.kafka_bootstrap_servers, "group.id": group}
    consumer = confluent_kafka.Consumer(settings)
    try:
        return int(consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=30)[0].offset)
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM])
def test_link_with_a_login_copies_a_secured_kafka_byte_for_byte(
    source: Source, tidelog: LocalCluster, mechanism: str, name: str
) -> None:
    topic, link = f"{name}-topic", name
    ends = fill(source, topic)
    wait_for(lambda: commits(source, name, topic, 3), "the source has no coordinator")
    with AdminClient({"bootstrap.servers": tidelog.bootstrap_servers}) as admin:
        admin.create_cluster_link(link, source.link(mechanism)).result(30)
        admin.create_mirror_topics(link, [topic], replication_factor=2)[topic].result(30)
        wait_for(lambda: are_equal(source, tidelog, topic, ends), "the mirror differs")
        wait_for(lambda: committed(tidelog, name, topic) == 3, "the group's offset is not copied")
        more(source, topic)
        ends = [end(source, topic, partition) for partition in range(PARTITIONS)]
        wait_for(lambda: are_equal(source, tidelog, topic, ends), "the mirror differs after a session has ended")
        assert admin.describe_mirror_topics(link).result(30)[topic].partitions[0].error is None
        admin.failover_mirror_topics([topic])[topic].result(30)
        admin.delete_cluster_link(link).result(30)


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        (PLAIN, "Authentication failed: Invalid username or password"),
        (SCRAM, "Authentication failed during authentication due to invalid credentials with SASL mechanism"),
    ],
)
def test_link_with_a_wrong_password_is_refused_and_the_answer_says_why(
    source: Source, tidelog: LocalCluster, mechanism: str, text: str, name: str
) -> None:
    with AdminClient({"bootstrap.servers": tidelog.bootstrap_servers}) as admin:
        with pytest.raises(KafkaException) as refused:
            admin.create_cluster_link(name, source.link(mechanism, "wrong")).result(30)
        assert name not in admin.list_cluster_links().result(30)
    login = f"the login to the node at {source.servers} with {mechanism}"
    assert f"SASL_AUTHENTICATION_FAILED: {login} has failed: {text}" in str(refused.value)
    assert "wrong" not in str(refused.value)


def test_link_without_a_login_or_with_another_mechanism_is_refused(
    source: Source, tidelog: LocalCluster, name: str
) -> None:
    other = source.link(SCRAM) | {"sasl.mechanism": "SCRAM-SHA-256"}
    plain = {"bootstrap.servers": source.servers}
    with AdminClient({"bootstrap.servers": tidelog.bootstrap_servers}) as admin:
        with pytest.raises(KafkaException, match=r"UNSUPPORTED_SASL_MECHANISM.*SCRAM-SHA-256"):
            admin.create_cluster_link(name, other).result(30)
        with pytest.raises(KafkaException, match=source.servers):
            admin.create_cluster_link(name, plain).result(60)
