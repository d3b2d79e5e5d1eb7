"""Kafka's clients, unmodified, with bearer tokens and with delegation tokens, and the errors of those refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.net.sasl.oauth
import pytest
from acknowledged import wait_for
from compat.java_tools import run
from token_issuer import AUDIENCE, ISSUER, Endpoints, Issuer, serving

from tidelog.testing import LocalCluster

DEADLINE_S = 30
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PREFIX = "listener.name.plaintext"


@dataclass(frozen=True)
class Secured:
    """A node whose Kafka listener accepts passwords, bearer tokens and delegation tokens."""

    cluster: LocalCluster
    issuer: Issuer
    endpoints: Endpoints

    @property
    def servers(self) -> str:
        return self.cluster.kafka_bootstrap_servers

    @property
    def log(self) -> str:
        return "".join(node.log_path.read_text() for node in self.cluster.nodes.values())

    def token(self, **claims: Any) -> str:
        return self.issuer.token(time.time(), **claims)

    def confluent(self, token: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 3_600),
            "reconnect.backoff.ms": 500,
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    issuer = Issuer()
    with serving() as endpoints:
        endpoints.answers["/jwks"] = (200, issuer.key_set())
        config = {
            "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN} username="node" password="n" user_node="n" user_alice="a";',
            f"{PREFIX}.oauthbearer.sasl.jaas.config": f"{OAUTH};",
            "sasl.oauthbearer.jwks.endpoint.url": endpoints.url("/jwks"),
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": 100,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "delegation.token.secret.key": "secret",
        }
        with LocalCluster(controllers=1, nodes=1, config=config) as cluster:
            yield Secured(cluster, issuer, endpoints)


def produce(settings: dict[str, Any]) -> None:
    producer = confluent_kafka.Producer(settings)
    producer.produce("bearer", b"1")
    assert producer.flush(DEADLINE_S) == 0


def test_confluent_kafka_produces_with_a_bearer_token_also_of_a_new_key(secured: Secured) -> None:
    produce(secured.confluent(secured.token()))
    secured.issuer.rotate("second", keep=False)
    secured.endpoints.answers["/jwks"] = (200, secured.issuer.key_set())
    produce(secured.confluent(secured.token()))


def test_refused_bearer_tokens_are_clear_errors_of_the_client_and_in_the_log(secured: Secured) -> None:
    stranger = Issuer()
    stranger.keys[secured.issuer.current] = stranger.keys.pop("first")
    stranger.current = secured.issuer.current
    refused = {
        "the token expired": secured.token(exp=int(time.time()) - 60, iat=0),
        "InvalidIssuerError": secured.token(iss="https://evil.example"),
        "InvalidAudienceError": secured.token(aud="elsewhere"),
        "InvalidSignatureError": stranger.token(time.time()),
    }
    errors: list[str] = []
    own = {"error_cb": lambda error: errors.append(str(error))}
    clients = {text: confluent_kafka.Producer(secured.confluent(token) | own) for text, token in refused.items()}

    def are_refused() -> bool:
        for client in clients.values():
            client.poll(0.02)
        return all(text in secured.log for text in refused) and len(errors) >= len(refused)

    wait_for(are_refused, "an error of each client, and a line in the log", DEADLINE_S)
    assert any('{"status":"invalid_token"}' in error for error in errors), errors
    assert not any(token in secured.log for token in refused.values())


@pytest.mark.compat
def test_kafka_python_and_aiokafka_produce_with_a_bearer_token(secured: Secured) -> None:
    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):
        def __init__(self, **_: object) -> None:
            pass

        def token(self) -> str:
            return secured.token()

    class AsyncProvider(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return secured.token()

    common = {
        "bootstrap_servers": secured.servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }
    producer = kafka.KafkaProducer(**common, sasl_oauth_token_provider=Provider())
    producer.send("bearer", b"2").get(DEADLINE_S)
    producer.close()

    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(**common, sasl_oauth_token_provider=AsyncProvider()) as sender:
            await sender.send_and_wait("bearer", b"3")

    asyncio.run(main())


@pytest.mark.compat
def test_java_clients_log_in_with_a_bearer_token_of_an_endpoint(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = secured.endpoints.url("/token")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    body = f'{{"access_token": "{secured.token(scope="kafka")}", "token_type": "Bearer"}}'
    secured.endpoints.answers["/token"] = (200, body.encode())
    settings = client_file(
        tmp_path,
        "OAUTHBEARER",
        f'{OAUTH} clientId="app" clientSecret="s";',
        f"sasl.oauthbearer.token.endpoint.url={url}",
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    )
    made = run("kafka-topics", "--bootstrap-server", secured.servers, "--command-config", settings, "--list")
    assert made.code == 0, made.said


@pytest.mark.compat
def test_javas_tools_create_use_renew_and_expire_delegation_tokens(secured: Secured, tmp_path: Path) -> None:
    alice = client_file(tmp_path, "PLAIN", f'{PLAIN} username="alice" password="a";')
    server = ("--bootstrap-server", secured.servers, "--command-config")

    def tokens(*arguments: str, settings: str = alice) -> str:
        done = run("kafka-delegation-tokens", *server, settings, *arguments)
        assert done.code == 0, done.said
        return done.out

    created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, hmac = created.strip().splitlines()[-1].split()[:2]
    assert token_id in tokens("--describe", "--owner-principal", "User:alice")
    by_token = client_file(
        tmp_path, "SCRAM-SHA-256", f'{SCRAM} username="{token_id}" password="{hmac}" tokenauth=true;'
    )
    assert run("kafka-topics", *server, by_token, "--list").code == 0
    refused = run("kafka-delegation-tokens", *server, by_token, "--create", "--max-life-time-period", "-1")
    assert "DelegationTokenDisabledException" in refused.said or "not allowed" in refused.said.lower(), refused.said
    tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in tokens("--describe")
    gone = run("kafka-topics", *server, by_token, "--list")
    assert "Authentication failed" in gone.said
    assert hmac not in secured.log


def client_file(folder: Path, mechanism: str, login: str, *lines: str) -> str:
    path = folder / f"{mechanism}.properties"
    own = ("security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login}")
    path.write_text("\n".join((*own, *lines)))
    return str(path)
