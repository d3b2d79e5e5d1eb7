"""Java's tools at a listener with GSSAPI, with a real key distribution center.

The wheels of confluent-kafka have librdkafka without Kerberos: it refuses the mechanism.
"""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from compat.java_tools import run
from kdc import missing_program, running_kdc

from tidelog.testing import LocalCluster

MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PREFIX = "listener.name.plaintext"


@pytest.mark.compat
def test_javas_tools_log_in_with_kerberos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gssapi", reason="needs python-gssapi: pip install tidelog[gssapi]", exc_type=ImportError)
    missing = missing_program()
    if missing is not None:
        pytest.skip(f"there is no {missing}: install Debian's krb5-kdc and krb5-admin-server")
    with running_kdc(tmp_path) as kdc:
        service, alice = kdc.key_table("kafka/localhost"), kdc.key_table("alice")
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.configuration))
        monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={kdc.configuration}")
        config = {
            "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.kerberos.service.name": "kafka",
            f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN} username="node" password="n" user_node="n";',
            f"{PREFIX}.gssapi.sasl.jaas.config": f'{MODULE} keyTab="{service}" '
            'principal="kafka/localhost@EXAMPLE.COM";',
        }
        with LocalCluster(controllers=1, nodes=1, config=config) as cluster:
            servers = cluster.kafka_bootstrap_servers.replace("127.0.0.1", "localhost")
            settings = tmp_path / "client.properties"
            settings.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
                f'sasl.jaas.config={MODULE} keyTab="{alice}" principal="alice@EXAMPLE.COM";\n'
            )
            create = ("--create", "--topic", "kerberos", "--partitions", "1", "--replication-factor", "1")
            done = run("kafka-topics", "--bootstrap-server", servers, "--command-config", str(settings), *create)
            assert done.code == 0, done.said + "".join(node.log_path.read_text() for node in cluster.nodes.values())
            settings.write_text(settings.read_text().replace("alice@", "kafka/localhost@"))
            refused = run("kafka-topics", "--bootstrap-server", servers, "--command-config", str(settings), "--list")
            assert refused.code != 0, "alice's key table has no key of the service"


@pytest.mark.compat
def test_confluent_kafkas_wheel_refuses_kerberos_by_itself() -> None:
    with pytest.raises(confluent_kafka.KafkaException, match=r"GSSAPI|SASL_CYRUS|sasl\.mechanism"):
        confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
        )
