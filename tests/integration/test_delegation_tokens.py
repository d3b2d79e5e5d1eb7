"""Delegation tokens through the SDK and the command line, in a cluster whose callers have certificates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from typer.testing import CliRunner

from tidelog import AdminClient, KafkaException
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app

SECRET = "the secret key of the tokens"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    config = {"delegation.token.secret.key": SECRET, "delegation.token.expiry.check.interval.ms": 100}
    with LocalCluster(1, 1, tmp_path_factory.mktemp("tokens") / "data", config, security="sasl_ssl") as cluster:
        yield cluster


def test_tokens_are_created_described_renewed_and_expired(cluster: LocalCluster, tmp_path: Path) -> None:
    with AdminClient(cluster.client_settings()) as admin:
        token = admin.create_delegation_token(["User:bob"], owner="User:alice", max_lifetime_ms=HOUR_MS).result()
        info = token.token_info
        assert (info.owner, info.renewers) == ("User:alice", ("User:bob",))
        assert info.token_requester != "User:ANONYMOUS"
        assert info.max_timestamp - info.issue_timestamp == HOUR_MS
        assert admin.describe_delegation_token(["User:bob"]).result() == [token]
        assert admin.describe_delegation_token(["User:eve"]).result() == []
        with pytest.raises(KafkaException, match="DELEGATION_TOKEN_OWNER_MISMATCH"):
            admin.renew_delegation_token(token.hmac).result()
        own = admin.create_delegation_token().result()
        assert admin.renew_delegation_token(own.hmac, renew_time_period_ms=HOUR_MS).result() > info.issue_timestamp
        assert admin.expire_delegation_token(own.hmac).result() >= own.token_info.issue_timestamp
        assert admin.describe_delegation_token().result() == [token]
        assert repr(token.hmac) not in repr(token)
        _check_login(cluster, admin)
        short = admin.create_delegation_token(max_lifetime_ms=1).result()
        wait_for(lambda: short not in admin.describe_delegation_token().result(), "the token to be removed", 30)
    _check_commands(cluster, tmp_path)
    written = [path for path in cluster.data_dir.rglob("*.log") if SECRET.encode() in path.read_bytes()]
    assert written == []


def _check_login(cluster: LocalCluster, admin: AdminClient) -> None:
    """Log in to gRPC with a token of alice, who may not create another one."""
    token = admin.create_delegation_token().result()
    login = {"sasl.username": token.token_info.token_id, "sasl.password": token.hmac_as_base64_string()}
    with AdminClient({**cluster.client_settings(), **login, "sasl.tokenauth": True}) as by_token:
        assert by_token.list_topics(timeout=30).brokers
        with pytest.raises(KafkaException, match="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
            by_token.create_delegation_token().result()
    admin.expire_delegation_token(token.hmac).result()
    gone = AdminClient({**cluster.client_settings(), **login, "sasl.tokenauth": True})
    with gone, pytest.raises(KafkaException, match="_AUTHENTICATION"):
        gone.list_topics(timeout=30)


def _check_commands(cluster: LocalCluster, folder: Path) -> None:
    settings = {**cluster.client_settings()}
    options = ["-b", settings.pop("bootstrap.servers")]
    for key, value in settings.items():
        options += ["--set", f"{key}={value}"]

    def run(*arguments: str) -> dict[str, object]:
        result = CliRunner().invoke(app, ["token", *arguments, *options, "--json"])
        assert result.exit_code == 0, result.output
        document: dict[str, object] = json.loads(result.stdout)
        return document

    created = run("create", "--max-lifetime", "2h")
    assert created["hmac"]
    token_id = str(created["token_id"])
    listed = run("list", "--owner", str(created["owner"]))["tokens"]
    assert isinstance(listed, list)
    assert {key: value for key, value in created.items() if key != "hmac"} in listed
    assert run("renew", token_id, "--period", "1h")["expires"]
    assert run("expire", token_id, "--yes") == {"token_id": token_id, "removed": True}
    refused = CliRunner().invoke(app, ["token", "renew", token_id, *options])
    assert refused.exit_code == 1
    assert "no token" in refused.output
