"""Cluster links to a source that requires a password and a client's certificate: what fails, how it shows, and the way
back. The commands ``tidelog link`` and ``tidelog mirror`` create, show and repair them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from acknowledged import wait_for
from certificates import Authority
from typer.testing import CliRunner, Result

from tidelog import Producer
from tidelog.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app

pytestmark = pytest.mark.slow

CA, OTHER_CA = Authority(), Authority("Another CA")
LINK, USER, TOPIC = "secured", "mirror", "orders"
SESSION_MS = 300
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Yield a cluster whose Kafka listeners require a certificate and a login, which its gRPC listeners do not."""
    folder = tmp_path_factory.mktemp("stores")
    config = {
        "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(CA.issue("node").write_pem(folder / "node.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(CA.write_pem(folder / "ca.pem")),
        "listener.name.plaintext.ssl.client.auth": "required",
        "inter.broker.listener.name": "GRPC",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with LocalCluster(1, 1, config=config) as cluster:
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        set_password(cluster, "first")
        yield cluster


@pytest.fixture(scope="module")
def mirror() -> Iterator[LocalCluster]:
    with LocalCluster(1, 1) as cluster:
        yield cluster


@pytest.fixture
def run(mirror: LocalCluster) -> Callable[..., Result]:
    def invoke(*args: str) -> Result:
        environment = {"TIDELOG_BOOTSTRAP_SERVERS": mirror.bootstrap_servers, "COLUMNS": "300"}
        return CliRunner().invoke(app, list(args), env=environment)

    return invoke


def set_password(source: LocalCluster, password: str) -> None:
    credential = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
    )
    with AdminClient({"bootstrap.servers": source.bootstrap_servers}) as admin:
        admin.alter_user_scram_credentials([credential])[USER].result(30)


def settings(
    folder: Path, password: str = "first", authority: Authority = CA, trusted: Authority = CA, **validity: timedelta
) -> str:
    """Write the settings of a link, with a new certificate, and return their file."""
    client = authority.issue("mirror", (), **validity)
    values = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{MODULE} required username="{USER}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": trusted.pem,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": client.key_pem(),
        "ssl.keystore.certificate.chain": client.certificate_pem,
    }
    path = folder / "link.properties"
    path.write_text("".join(f"{key}={value.replace(chr(10), ' ')}\n" for key, value in values.items()))
    return str(path)


def produce(source: LocalCluster, count: int) -> None:
    with Producer({"bootstrap.servers": source.bootstrap_servers}) as producer:
        for number in range(count):
            producer.produce(TOPIC, str(number))


def shown(run: Callable[..., Result], *args: str) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def wait_for_end(run: Callable[..., Result], end: int) -> None:
    def is_reached() -> bool:
        [partition] = shown(run, "mirror", "describe", TOPIC)["partitions"]
        return bool(partition["high_watermark"] == end and partition["error"] is None)

    wait_for(is_reached, f"the mirror has not {end} records")


def wait_for_error(run: Callable[..., Result], *texts: str) -> None:
    """Wait until the link is unavailable, and both commands show why."""

    def is_shown() -> bool:
        link = shown(run, "link", "describe", LINK)
        errors = " ".join(found["error"] for found in link["errors"])
        return link["state"] == "UNAVAILABLE" and any(text in errors for text in texts)

    wait_for(is_shown, f"no error with {texts}: {run('link', 'describe', LINK).output}")
    [partition] = shown(run, "mirror", "describe", TOPIC)["partitions"]
    assert partition["error"] is not None
    assert "UNAVAILABLE" in run("link", "describe", LINK).output


def test_link_with_a_wrong_password_or_certificate_is_not_created_and_the_answer_says_why(
    source: LocalCluster, run: Callable[..., Result], tmp_path: Path
) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("SASL_AUTHENTICATION_FAILED", {"password": "wrong"}),
        ("its certificate is not valid: self-signed", {"trusted": OTHER_CA}),
        ("ALERT_CERTIFICATE_EXPIRED", {"valid_for": timedelta(days=-1)}),
        ("ALERT_UNKNOWN_CA", {"authority": OTHER_CA}),
    ]
    for text, own in cases:
        file = settings(tmp_path, **own)
        refused = run("link", "create", LINK, "--source", source.kafka_bootstrap_servers, "--config-file", file)
        assert refused.exit_code == 1
        assert text in refused.output
        assert "first" not in refused.output
    assert shown(run, "link", "list") == {"links": []}


def test_running_link_shows_why_it_fails_and_continues_with_new_settings(
    source: LocalCluster, run: Callable[..., Result], tmp_path: Path
) -> None:
    at = "--source", source.kafka_bootstrap_servers
    assert run("link", "create", LINK, *at, "--config-file", settings(tmp_path)).exit_code == 0
    assert run("mirror", "create", LINK, TOPIC).exit_code == 0
    produce(source, 3)
    wait_for_end(run, 3)
    described = shown(run, "link", "describe", LINK)
    assert (described["state"], described["errors"], described["mirror_topics"]) == ("ACTIVE", [], 1)
    assert {described["settings"][key] for key in ("sasl.jaas.config", "ssl.keystore.key")} == {"[hidden]"}

    set_password(source, "second")
    wait_for_error(run, "SASL_AUTHENTICATION_FAILED")
    produce(source, 2)
    refused = run("link", "alter", LINK, "--config-file", settings(tmp_path, "third"))
    assert refused.exit_code == 1
    assert "SASL_AUTHENTICATION_FAILED" in refused.output
    soon = timedelta(seconds=3)
    assert run("link", "alter", LINK, "--config-file", settings(tmp_path, "second", valid_for=soon)).exit_code == 0
    wait_for_end(run, 5)

    time.sleep(soon.total_seconds())
    # TLS checks certificates only when a connection is opened.
    source.nodes[1].kill()
    source.nodes[1].start()
    source.wait_ready()
    produce(source, 2)
    wait_for_error(run, "ALERT_CERTIFICATE_EXPIRED")
    assert run("link", "alter", LINK, "--config-file", settings(tmp_path, "second")).exit_code == 0
    wait_for_end(run, 7)
    assert shown(run, "link", "describe", LINK)["state"] == "ACTIVE"
