"""Kafka's shell tools at a cluster with security, with the file for Java that the cluster writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from acknowledged import wait_for
from certificates import Authority, Issued
from compat.java_tools import Ended, run

from tidelog.testing import LocalCluster
from tidelog.testing.security import JAVA_FILE

pytestmark = pytest.mark.compat
DEADLINE_S = 30


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, 1, tmp_path_factory.mktemp("secured") / "data", security="ssl") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def with_logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, 1, tmp_path_factory.mktemp("logins") / "data", security="sasl_ssl") as cluster:
        yield cluster


@pytest.fixture
def authority(cluster: LocalCluster) -> Authority:
    return Authority.open(cluster.security.folder / "ca-key.pem")


def tool(cluster: LocalCluster, name: str, *arguments: str, config: Path | None = None, stdin: str = "") -> Ended:
    option = {"kafka-console-producer": "--producer.config", "kafka-console-consumer": "--consumer.config"}
    file = config or cluster.security.folder / JAVA_FILE
    servers = ("--bootstrap-server", cluster.kafka_bootstrap_servers)
    return run(name, *servers, option.get(name, "--command-config"), str(file), *arguments, stdin=stdin)


@pytest.mark.parametrize("name", ["cluster", "with_logins"])
def test_shell_tools_create_produce_and_consume_with_the_file_of_the_cluster(
    name: str, request: pytest.FixtureRequest
) -> None:
    cluster: LocalCluster = request.getfixturevalue(name)
    created = tool(cluster, "kafka-topics", "--create", "--topic", "t", "--partitions", "1")
    assert (created.code, created.out) == (0, "Created topic t.\n"), created
    produced = tool(cluster, "kafka-console-producer", "--topic", "t", stdin="one\ntwo\n")
    assert produced.code == 0, produced
    limits = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")
    read = tool(cluster, "kafka-console-consumer", "--topic", "t", *limits)
    assert read.out.split() == ["one", "two"], read
    described = tool(cluster, "kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
    assert "ssl.keystore.key=null sensitive=true" in described.out


@pytest.mark.parametrize(
    ("issue", "logged"),
    [
        pytest.param(None, "peer did not return a certificate", id="no certificate"),
        pytest.param(
            lambda _: Authority("Other").issue("admin"),
            "unable to get local issuer certificate",
            id="unknown authority",
        ),
        pytest.param(
            lambda authority: authority.issue("admin", valid_for=timedelta(days=-1)),
            "certificate has expired",
            id="expired",
        ),
    ],
)
def test_client_without_a_valid_certificate_is_told_and_logged(
    cluster: LocalCluster,
    authority: Authority,
    issue: Callable[[Authority], Issued] | None,
    logged: str,
    tmp_path: Path,
) -> None:
    given = (cluster.security.folder / JAVA_FILE).read_text().splitlines()
    lines = [line for line in given if not line.startswith("ssl.keystore.")]
    if issue is not None:
        store = issue(authority).write_pem(tmp_path / "client.pem")
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={store}"]
    (tmp_path / "client.properties").write_text("\n".join(lines))
    refused = tool(cluster, "kafka-topics", "--list", config=tmp_path / "client.properties")
    assert refused.code == 1
    # With TLS 1.3, the server refuses a client after its handshake; Kafka's tools say no more.
    assert "Failed to process post-handshake messages" in refused.said
    assert logged in cluster.nodes[1].log_path.read_text()


def test_client_refuses_a_certificate_for_another_host(cluster: LocalCluster, authority: Authority) -> None:
    log, store = cluster.nodes[1].log_path, cluster.security.folder / "node-1.pem"
    before = store.read_bytes()
    authority.issue("elsewhere", hosts=["elsewhere.example"]).write_pem(store)
    wait_for(lambda: "Listener SSL uses the new certificate of CN=elsewhere" in log.read_text(), "it", DEADLINE_S)
    refused = tool(cluster, "kafka-topics", "--list")
    assert refused.code == 1
    assert "SSL handshake failed" in refused.said
    store.write_bytes(before)
    wait_for(lambda: "Listener SSL uses the new certificate of CN=node-1" in log.read_text(), "it", DEADLINE_S)


def test_user_without_acls_is_denied_and_one_with_a_wrong_password_is_refused(
    with_logins: LocalCluster, tmp_path: Path
) -> None:
    cluster, mine = with_logins, (with_logins.security.folder / JAVA_FILE).read_text()
    added = ("--alter", "--add-config", "SCRAM-SHA-512=[password=wonderland]")
    created = tool(cluster, "kafka-configs", *added, "--entity-type", "users", "--entity-name", "alice")
    assert created.code == 0, created
    alice = mine.replace(cluster.security.password(), "wonderland").replace('"admin"', '"alice"')
    (tmp_path / "alice.properties").write_text(alice)
    denied = tool(cluster, "kafka-topics", "--create", "--topic", "hers", config=tmp_path / "alice.properties")
    assert (denied.code, "Authorization failed" in denied.said) == (1, True), denied
    rule = ("--add", "--allow-principal", "User:alice", "--operation", "All", "--topic", "hers")
    assert tool(cluster, "kafka-acls", *rule).code == 0
    permitted = tool(cluster, "kafka-topics", "--create", "--topic", "hers", config=tmp_path / "alice.properties")
    assert permitted.code == 0, permitted
    (tmp_path / "wrong.properties").write_text(alice.replace("wonderland", "looking glass"))
    refused = tool(cluster, "kafka-topics", "--list", config=tmp_path / "wrong.properties")
    assert refused.code == 1
    assert "Authentication failed" in refused.said
    assert "alice" in cluster.nodes[1].log_path.read_text()
    assert "looking glass" not in cluster.nodes[1].log_path.read_text()
