"""Java's tools and Tidelog's own clients at listeners with GSSAPI, and nodes among themselves, with a real KDC.

The wheels of confluent-kafka have librdkafka without Kerberos: it refuses the mechanism.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from acknowledged import wait_for
from compat.java_tools import run
from kdc import Kdc, missing_program, running_kdc

from tidelog import AdminClient, Consumer, KafkaError, KafkaException, NewTopic, Producer, aio
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.compat
DEADLINE_S = 30

MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PREFIX = "listener.name.plaintext"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    pytest.importorskip("gssapi", reason="needs python-gssapi: pip install tidelog[gssapi]", exc_type=ImportError)
    missing = missing_program()
    if missing is not None:
        pytest.skip(f"there is no {missing}: install Debian's krb5-kdc and krb5-admin-server")
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(running.configuration))
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={running.configuration}")
        yield running


def login(key_table: Path, principal: str) -> str:
    return f'{MODULE} keyTab="{key_table}" principal="{principal}@EXAMPLE.COM";'


def sdk(cluster: LocalCluster, key_table: Path, user: str, service: str = "kafka") -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **kerberos(key_table, user, service)}


def kerberos(key_table: Path, user: str, service: str = "kafka") -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": service,
        "sasl.kerberos.principal": f"{user}@EXAMPLE.COM",
        "sasl.kerberos.keytab": str(key_table),
    }


@pytest.fixture(scope="module", params=["PLAINTEXT", "GRPC"])
def nodes(request: pytest.FixtureRequest, kdc: Kdc) -> Iterator[tuple[LocalCluster, Kdc]]:
    """Two nodes whose listeners have GSSAPI only, with which they log in to each other, and to the controller."""
    service, admin = kdc.key_table("kafka/127.0.0.1"), kdc.key_table("admin")
    config = {
        "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,GRPC_SASL_PLAINTEXT:GRPC_SASL_PLAINTEXT,"
        "PLAINTEXT:SASL_PLAINTEXT",
        "controller.listener.names": "GRPC_SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "inter.broker.listener.name": request.param,
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "min.insync.replicas": "2",
        **{
            f"listener.name.{name}.gssapi.sasl.jaas.config": login(service, "kafka/127.0.0.1")
            for name in ("plaintext", "grpc", "grpc_sasl_plaintext")
        },
    }
    with LocalCluster(controllers=1, nodes=2, config=config, client_config=kerberos(admin, "admin")) as cluster:
        yield cluster, kdc


def log_of(cluster: LocalCluster) -> str:
    return "".join(node.log_path.read_text() for node in cluster.nodes.values())


def test_sdk_produces_to_all_replicas_with_kerberos_and_nodes_log_in_to_each_other(
    nodes: tuple[LocalCluster, Kdc],
) -> None:
    cluster, kdc = nodes
    settings = sdk(cluster, kdc.key_table("alice"), "alice")
    with AdminClient(settings) as admin:
        admin.create_topics([NewTopic("kerberos", 1, 2)])["kerberos"].result(DEADLINE_S)
    failures: list[str] = []
    with Producer(settings | {"acks": "all"}) as producer:
        for n in range(20):
            producer.produce(
                "kerberos", b"%d" % n, on_delivery=lambda error, _: failures.append(str(error)) if error else None
            )
        assert producer.flush(DEADLINE_S) == 0
    assert failures == [], log_of(cluster)
    with Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["kerberos"])
        found = []
        wait_for(lambda: found.extend(consumer.consume(20, 1)) or len(found) == 20, "all records", DEADLINE_S)
    assert [message.value() for message in found] == [b"%d" % n for n in range(20)]


def test_asyncio_client_logs_in_with_kerberos(nodes: tuple[LocalCluster, Kdc]) -> None:
    cluster, kdc = nodes

    async def main() -> int:
        async with aio.AdminClient(sdk(cluster, kdc.key_table("carol"), "carol")) as admin:
            return len((await admin.list_topics()).brokers)

    assert asyncio.run(main()) == 2


def test_sdk_names_the_fault_of_a_login_with_kerberos(nodes: tuple[LocalCluster, Kdc], tmp_path: Path) -> None:
    cluster, kdc = nodes
    own = kdc.key_table("bob")
    for settings, said in (
        (sdk(cluster, own, "mallory"), "mallory"),
        (sdk(cluster, own, "bob", "other"), "other/127.0.0.1@EXAMPLE.COM not found"),
    ):
        with AdminClient(settings) as admin, pytest.raises(KafkaException) as refused:
            admin.list_topics(timeout=DEADLINE_S)
        assert refused.value.args[0].code() == KafkaError._AUTHENTICATION, refused.value
        assert said in str(refused.value)


def test_node_names_a_ticket_that_it_cannot_read_in_its_log(nodes: tuple[LocalCluster, Kdc]) -> None:
    cluster, kdc = nodes
    client = kdc.key_table("dora")
    before = log_of(cluster)
    kdc.change_key("kafka/127.0.0.1")
    with AdminClient(sdk(cluster, client, "dora")) as admin, pytest.raises(KafkaException) as refused:
        admin.list_topics(timeout=DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError._AUTHENTICATION
    assert "GSSAPI: " in log_of(cluster).removeprefix(before)


def test_javas_tools_log_in_with_kerberos(kdc: Kdc, tmp_path: Path) -> None:
    service, alice = kdc.key_table("kafka/localhost"), kdc.key_table("java")
    config = {
        "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.kerberos.service.name": "kafka",
        f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN} username="node" password="n" user_node="n";',
        f"{PREFIX}.gssapi.sasl.jaas.config": f'{MODULE} keyTab="{service}" principal="kafka/localhost@EXAMPLE.COM";',
    }
    with LocalCluster(controllers=1, nodes=1, config=config) as cluster:
        servers = cluster.kafka_bootstrap_servers.replace("127.0.0.1", "localhost")
        settings = tmp_path / "client.properties"
        settings.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
            f'sasl.jaas.config={MODULE} keyTab="{alice}" principal="java@EXAMPLE.COM";\n'
        )
        create = ("--create", "--topic", "kerberos", "--partitions", "1", "--replication-factor", "1")
        done = run("kafka-topics", "--bootstrap-server", servers, "--command-config", str(settings), *create)
        assert done.code == 0, done.said + "".join(node.log_path.read_text() for node in cluster.nodes.values())
        settings.write_text(settings.read_text().replace("java@", "kafka/localhost@"))
        refused = run("kafka-topics", "--bootstrap-server", servers, "--command-config", str(settings), "--list")
        assert refused.code != 0, "the client's key table has no key of the service"


def test_confluent_kafkas_wheel_refuses_kerberos_by_itself() -> None:
    with pytest.raises(confluent_kafka.KafkaException, match=r"GSSAPI|SASL_CYRUS|sasl\.mechanism"):
        confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
        )
