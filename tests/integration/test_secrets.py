"""No secret appears in what a cluster, its clients and the command line write."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from canaries import Canaries
from certificates import Authority, Issued
from confluent_kafka.admin import AdminClient as KafkaAdminClient
from confluent_kafka.admin import ConfigResource as KafkaConfigResource
from typer.testing import CliRunner

from tidelog import AdminClient, KafkaException, Producer
from tidelog.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tidelog.cluster.config import ClientConfig
from tidelog.producer.config import ProducerConfig
from tidelog.testing import LocalCluster
from tidelog.testing.security import PASSWORDS_FILE
from tidelog_cli.commands import app
from tidelog_foundation.config import parse_config
from tidelog_node.__main__ import main as run_node
from tidelog_quorum.__main__ import main as run_controller

DEADLINE_S = 30


@dataclass(frozen=True)
class Secured:
    cluster: LocalCluster
    canaries: Canaries
    client: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, authority, canaries = tmp_path_factory.mktemp("secrets"), Authority(), Canaries()
    server, alice = authority.issue("node"), authority.issue("alice", hosts=())
    store_password, key_password = canaries.new("store password"), canaries.new("key password")
    (folder / "store-password").write_text(f"{store_password}\n")
    key = _one_line(server.key_pem(key_password))
    _watch_key(canaries, server, key)
    properties = {"key": key, "chain": _one_line(server.certificate_pem), "password": key_password}
    properties["rules"] = f"RULE:^CN={canaries.new('rule')}$/x/,DEFAULT"
    (folder / "secrets.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    file = f"${{file:{folder}/secrets.properties:"
    config = {
        "listener.security.protocol.map": "GRPC:GRPC_SSL,GRPC_SSL:GRPC_SSL,PLAINTEXT:SSL",
        "controller.listener.names": "GRPC_SSL",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": server.write_pkcs12(folder / "node.p12", store_password),
        "ssl.keystore.password": f"${{dir:{folder}:store-password}}",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": folder / "node.p12",
        "ssl.truststore.password": "${env:TIDELOG_TEST_STORE_PASSWORD}",
        "ssl.principal.mapping.rules": f"{file}rules}}",
        "listener.name.plaintext.ssl.keystore.type": "PEM",
        "listener.name.plaintext.ssl.keystore.location": "",
        "listener.name.plaintext.ssl.keystore.password": "",
        "listener.name.plaintext.ssl.keystore.key": f"{file}key}}",
        "listener.name.plaintext.ssl.keystore.certificate.chain": f"{file}chain}}",
        "listener.name.plaintext.ssl.key.password": f"{file}password}}",
    }
    alice_password = canaries.new("password of alice's key")
    _watch_key(canaries, alice, alice.key_pem())
    client = {
        "security.protocol": "ssl",
        "ssl.ca.pem": authority.pem,
        "ssl.certificate.pem": alice.certificate_pem,
        "ssl.key.pem": alice.key_pem(alice_password),
        "ssl.key.password": alice_password,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDELOG_TEST_STORE_PASSWORD", store_password)
        with LocalCluster(1, 1, folder / "data", config, client_config=client) as cluster:
            yield Secured(cluster, canaries, {"bootstrap.servers": cluster.bootstrap_servers, **client}, folder)
    assert canaries.found_in_files(folder / "data") == {}, "the files of the cluster contain secrets"


def _one_line(pem: str) -> str:
    return pem.replace("\n", " ").strip()


def _watch_key(canaries: Canaries, issued: Issued, shown: str) -> None:
    """Watch for lines of a private key, encrypted as it is shown, and in plain text."""
    for pem in (issued.key_pem(), shown):
        for word in pem.split():
            if len(word) >= 40:
                canaries.add("private key", word)


def test_descriptions_of_a_cluster_contain_no_secret(secured: Secured) -> None:
    with AdminClient(secured.client) as admin:
        resource = ConfigResource(ResourceType.BROKER, "1")
        described = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        shown = "".join(f"{e!r} {e.name} {e.value} {e.synonyms} {e.is_sensitive}\n" for e in described.values())
    assert described["ssl.keystore.password"].is_sensitive
    assert described["ssl.principal.mapping.rules"].is_sensitive
    kafka = KafkaAdminClient({**secured.client, "bootstrap.servers": secured.cluster.kafka_bootstrap_servers})
    theirs = KafkaConfigResource("BROKER", "1")
    for entry in kafka.describe_configs([theirs])[theirs].result(DEADLINE_S).values():
        shown += f"{entry!r} {entry.name} {entry.value} {entry.synonyms}\n"
    profile = secured.folder / "profile.toml"
    environment = {"TIDELOG_PROFILE": str(profile), "COLUMNS": "200"}
    settings = [text for key, value in secured.client.items() for text in ("-X", f"{key}={value}")]
    for command in (
        ["profile", "create", "a", "-b", secured.cluster.bootstrap_servers, *settings],
        ["profile", "show", "a"],
        ["profile", "show", "a", "--json"],
        ["config", "describe", "--node", "1", "--json"],
        ["cluster", "describe", "-vv"],
    ):
        result = CliRunner().invoke(app, command, env=environment)
        assert result.exit_code == 0, result.stderr
        shown += result.output + result.stderr
    assert "[hidden]" in shown
    assert secured.canaries.found_in(shown) == []


def test_passwords_of_users_are_in_no_output_and_not_in_the_metadata_log(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = secured.canaries.new("password of a user"), secured.canaries.new("password in a request")
    password_file = secured.folder / "alice.txt"
    password_file.write_text(first)
    environment = {"TIDELOG_PROFILE": str(secured.folder / "none.toml"), "COLUMNS": "200"}
    settings = [text for key, value in secured.client.items() for text in ("-X", f"{key}={value}")]
    cluster = ["-b", secured.cluster.bootstrap_servers, *settings]
    shown = ""
    with caplog.at_level(logging.DEBUG):
        for command in (
            ["user", "create", "alice", "--password-file", str(password_file), "-vv"],
            ["user", "create", "alice", "--password-file", str(password_file)],
            ["user", "set-password", "alice", "--password-file", str(password_file), "--json"],
            ["user", "list", "--json"],
        ):
            result = CliRunner().invoke(app, [*command, *cluster], env=environment)
            shown += f"{result.output} {result.stderr} {result.exception!r}"
        too_weak = UserScramCredentialUpsertion(
            "bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 1), second.encode()
        )
        with AdminClient(secured.client) as admin, pytest.raises(KafkaException, match="Too few iterations") as error:
            admin.alter_user_scram_credentials([too_weak])["bob"].result(DEADLINE_S)
    assert "created user alice" in shown
    assert secured.canaries.found_in(f"{shown} {error.value!r} {too_weak!r} {caplog.text}") == []


@pytest.mark.parametrize("key", ["listener.name.plaintext.ssl.key.password", "ssl.keystore.key", "sasl.jaas.config"])
def test_refused_change_of_a_secret_does_not_show_it(secured: Secured, key: str) -> None:
    canary = secured.canaries.new(f"changed {key}")
    entry = ConfigEntry(key, canary, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    with AdminClient(secured.client) as admin, pytest.raises(KafkaException) as error:
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    assert secured.canaries.found_in(f"{error.value} {error.value!r}") == []


def test_clients_show_no_secret(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    canary = secured.canaries.new("wrong password")
    shown = repr(parse_config(ClientConfig, secured.client)) + repr(parse_config(ProducerConfig, secured.client))
    with caplog.at_level(logging.DEBUG), Producer(secured.client) as producer, AdminClient(secured.client) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        producer.produce("t", b"1")
        assert producer.flush(DEADLINE_S) == 0
        shown += f"{producer!r} {admin!r} {vars(admin) if hasattr(admin, '__dict__') else ''}"
        for wrong in (
            {"ssl.key.password": canary},
            {"ssl.key.pem": canary},
            {"ssl.key.location": "/nowhere"},
            {"ssl.keystore.location": str(secured.folder / "node.p12"), "ssl.keystore.password": canary},
            {"ssl.keystore.password": canary, "security.protocol": None},
        ):
            with pytest.raises(KafkaException) as error:
                AdminClient({**secured.client, **wrong}).list_topics(timeout=3)
            shown += f"{error.value} {error.value!r} {error.value.__cause__!r}"
    assert secured.canaries.found_in(shown + caplog.text) == []


WRONG = (
    {"ssl.key.password": "{canary}"},
    {"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----{canary}-----END PRIVATE KEY-----"},
    {"ssl.keystore.key": "{canary}"},
    {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "{canary}", "ssl.keystore.key": ""},
    {"ssl.keystore.type": "${{env:CANARY}}"},
    {"ssl.principal.mapping.rules": "${{env:CANARY}}"},
    {"listeners": "${{env:CANARY}}"},
    {"node.id": "${{env:CANARY}}"},
    {"ssl.key.pasword": "{canary}"},
)


@pytest.mark.parametrize("run", [run_node, run_controller], ids=["node", "controller"])
@pytest.mark.parametrize("wrong", WRONG, ids=[",".join(w) for w in WRONG])
def test_process_that_does_not_start_says_why_without_the_secret(
    secured: Secured,
    run: Any,
    wrong: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    canary = secured.canaries.new("rejected value")
    monkeypatch.setenv("CANARY", canary)
    store = Authority().issue("node")
    settings = {
        "node.id": "1",
        "cluster.id": "c",
        "listeners": "GRPC_SSL://127.0.0.1:0",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "log.dirs" if run is run_node else "metadata.log.dir": str(tmp_path / "data"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": _one_line(store.key_pem("right")),
        "ssl.keystore.certificate.chain": _one_line(store.certificate_pem),
        "ssl.key.password": "right",
    }
    settings |= {key: value.format(canary=canary) for key, value in wrong.items()}
    if settings["ssl.keystore.type"] == "PKCS12":
        location = str(store.write_pkcs12(tmp_path / "node.p12", "right"))
        settings |= {"ssl.keystore.location": location, "ssl.keystore.certificate.chain": ""}
    (tmp_path / "p").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    monkeypatch.setattr(sys, "argv", ["server", str(tmp_path / "p")])
    with pytest.raises(SystemExit) as ended:
        run()
    captured = capfd.readouterr()
    assert ended.value.code == 2, captured
    assert any(text in captured.err for text in ("ssl.keystore.", *wrong))
    assert secured.canaries.found_in(captured.out + captured.err) == []


def test_passwords_of_users_appear_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    canaries = Canaries()
    wrong, new, changed = canaries.new("wrong password"), canaries.new("new password"), canaries.new("changed jaas")
    with LocalCluster(1, 1, tmp_path / "data", security="sasl_ssl") as cluster, caplog.at_level(logging.DEBUG):
        settings, folder = cluster.client_settings(), cluster.security.folder
        for line in (folder / PASSWORDS_FILE).read_text().splitlines():
            canaries.add(f"password of {line.partition('=')[0]}", line.partition("=")[2])
        shown = repr(parse_config(ClientConfig, settings)) + repr(parse_config(ProducerConfig, settings))
        with AdminClient(settings) as admin:
            credential = UserScramCredentialUpsertion(
                "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), new.encode()
            )
            shown += f"{credential!r}"
            admin.alter_user_scram_credentials([credential])["alice"].result(DEADLINE_S)
            shown += repr(admin.describe_user_scram_credentials(["alice"])["alice"].result(DEADLINE_S))
            broker = ConfigResource(ResourceType.BROKER, "1")
            for each in admin.describe_configs([broker])[broker].result(DEADLINE_S).values():
                shown += f"{each!r} {each.value} {each.synonyms}"
            jaas = ConfigEntry("listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config", changed)
            jaas.incremental_operation = AlterConfigOpType.SET
            broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[jaas])
            with pytest.raises(KafkaException) as refused:
                admin.incremental_alter_configs([broker])[broker].result(DEADLINE_S)
            shown += f"{refused.value!r}"
        with AdminClient({**settings, "sasl.password": wrong}) as admin, pytest.raises(KafkaException) as refused:
            admin.list_topics(timeout=5)
        shown += f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"
        profile = {"TIDELOG_PROFILE": str(tmp_path / "profile.toml"), "COLUMNS": "200"}
        given = [text for key, value in settings.items() if "servers" not in key for text in ("-X", f"{key}={value}")]
        for command, stdin in (
            (["profile", "create", "a", "-b", cluster.bootstrap_servers, *given], ""),
            (["profile", "show", "a"], ""),
            (["user", "create", "bob", "--password-file", "-"], f"{new}\n"),
            (["user", "list", "-vv"], ""),
            (["config", "describe", "--node", "1", "--json"], ""),
        ):
            result = CliRunner().invoke(app, command, input=stdin, env=profile)
            assert result.exit_code == 0, result.stderr
            shown += result.output + result.stderr
    assert canaries.found_in(shown + caplog.text) == []
    secret = [path for path in folder.iterdir() if path.is_file()]
    assert canaries.found_in_files(tmp_path / "data", secret) == {}
