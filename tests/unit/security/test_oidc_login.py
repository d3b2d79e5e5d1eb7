"""Tidelog's own clients with tokens of a token endpoint, on a node in memory that requires them."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from token_issuer import AUDIENCE, Issuer, serving

from tidelog import KafkaException
from tidelog.admin import AdminClient
from tidelog.testing import FakeCluster

DEADLINE_S = 20


def test_clients_log_in_with_tokens_of_an_endpoint() -> None:
    issuer = Issuer()
    with serving() as endpoints:
        endpoints.answers["/jwks"] = (200, issuer.key_set())
        endpoints.answers["/token"] = (200, json.dumps({"access_token": issuer.token(time.time())}).encode())
        node = {
            "listener.security.protocol.map": "GRPC:GRPC_SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:GRPC",
            "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": endpoints.url("/jwks"),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": "1",
        }
        with FakeCluster(node_config=node) as cluster:
            settings: dict[str, Any] = {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": endpoints.url("/token"),
                "sasl.oauthbearer.client.id": "app",
                "sasl.oauthbearer.client.secret": "secret",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "pool=p1",
            }
            with AdminClient(settings) as admin:
                assert admin.list_topics(timeout=DEADLINE_S).brokers
            assert ("/token", {"grant_type": ["client_credentials"], "scope": ["kafka"]}) in [
                request[:2] for request in endpoints.requests
            ]
            expired = issuer.token(time.time(), exp=int(time.time()) - 60, iat=0)
            endpoints.answers["/token"] = (200, json.dumps({"access_token": expired, "expires_in": 3_600}).encode())
            refused = 'Authentication failed with SASL mechanism OAUTHBEARER: {"status":"invalid_token"}'
            with AdminClient(settings) as admin, pytest.raises(KafkaException, match=re.escape(refused)):
                admin.list_topics(timeout=DEADLINE_S)
            endpoints.answers["/token"] = (401, b"")
            with AdminClient(settings) as admin, pytest.raises(KafkaException, match="the server answers 401"):
                admin.list_topics(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, r"sasl\.oauthbearer\.token\.endpoint\.url"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://x"}, "must begin with https"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://x/"}, r"sasl\.oauthbearer\.client\.id"),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "https://x/",
                "sasl.oauthbearer.client.id": "a",
                "sasl.oauthbearer.client.secret": "s3cret",
                "sasl.oauthbearer.extensions": "pool",
            },
            "must be name=value",
        ),
    ],
)
def test_incomplete_settings_of_an_endpoint_are_refused(changes: dict[str, str], text: str) -> None:
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
    }
    with pytest.raises(KafkaException, match=text) as refused:
        AdminClient({**settings, **changes})
    assert "s3cret" not in str(refused.value)
