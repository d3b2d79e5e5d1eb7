from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.oauth.token import INSUFFICIENT_SCOPE, BearerToken, TokenRefused
from tidelog_foundation.sasl.mechanism import Authenticated, AuthenticationFailed, Challenge, SaslContext
from tidelog_foundation.sasl.oauthbearer import ClientToken, OAuthBearerClient, OAuthBearerLogin, OAuthBearerMechanism
from tidelog_foundation.security.principal import Principal

CONTEXT = SaslContext("SASL_SSL", "10.0.0.1", is_encrypted=True)


class Tokens:
    """Accepts the token ``good`` of alice, and refuses others as ``refusal`` says."""

    refusal = TokenRefused("the token expired 5 s ago")

    def validate(self, token: str, now_ms: int) -> BearerToken:
        if token != "good":
            raise self.refusal
        return BearerToken("alice", now_ms + 60_000, frozenset())


def server(tokens: Tokens | None = None):
    return OAuthBearerMechanism(tokens or Tokens()).server(CONTEXT)


def test_oauthbearer_authenticates_the_principal_until_the_token_expires():
    client = OAuthBearerLogin(lambda: ClientToken("good", 60_000, {"logicalCluster": "lkc-1"})).client("node-1")
    assert client.first() == b"n,,\x01auth=Bearer good\x01logicalCluster=lkc-1\x01\x01"
    step = server().evaluate(client.first(), 1_000)
    assert step == Authenticated(Principal("User", "alice"), b"", 61_000)
    assert client.evaluate(step.response) is None
    assert client.is_complete


def test_oauthbearer_refuses_an_invalid_token_with_json_and_fails_after_the_confirmation():
    client, exchange = OAuthBearerClient(ClientToken("bad", 0)), server()
    step = exchange.evaluate(client.first(), 1_000)
    assert step == Challenge(b'{"status":"invalid_token"}', "the token expired 5 s ago")
    confirmation = client.evaluate(step.token)
    assert confirmation == b"\x01"
    assert not client.is_complete
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.evaluate(confirmation, 1_001)
    assert (failed.value.reason, failed.value.public) == ("the token expired 5 s ago", '{"status":"invalid_token"}')
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        client.evaluate(b"")


def test_oauthbearer_accepts_no_second_token_after_a_refusal():
    exchange = server()
    exchange.evaluate(OAuthBearerClient(ClientToken("bad", 0)).first(), 1_000)
    with pytest.raises(AuthenticationFailed):
        exchange.evaluate(OAuthBearerClient(ClientToken("good", 0)).first(), 1_000)


def test_oauthbearer_names_the_required_scope_as_kafka_does():
    tokens = Tokens()
    tokens.refusal = TokenRefused("no scope", INSUFFICIENT_SCOPE, "admin write")
    step = server(tokens).evaluate(OAuthBearerClient(ClientToken("bad", 0)).first(), 0)
    assert step == Challenge(b'{"status":"insufficient_scope", "scope":"admin write"}', "no scope")


def test_oauthbearer_accepts_the_tokens_own_principal_as_authorization_id_and_no_other():
    assert server().evaluate(OAuthBearerClient(ClientToken("good", 0, identity="alice")).first(), 0).principal
    with pytest.raises(AuthenticationFailed) as failed:
        server().evaluate(OAuthBearerClient(ClientToken("good", 0, identity="bo=b,")).first(), 0)
    assert failed.value.public is not None
    assert "authorization id (bo=b,) that is different from the token's principal name (alice)" in failed.value.public


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x011=2\x01\x01",
        b"n,,\x01auth=Bearer good\x01name=\x01\x01",
        b"n,,\x01auth=Bearer good\x01name\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer good\x01\x01",
        b"n,,\x01Auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\xff\x01\x01",
    ],
)
def test_oauthbearer_fails_on_a_malformed_message(message):
    with pytest.raises(AuthenticationFailed) as failed:
        server().evaluate(message, 0)
    assert failed.value.public is None


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_oauthbearer_raises_nothing_but_a_failure_whatever_the_message(start, end):
    for message in (start, b"n,," + start, start + b"auth=Bearer good" + end, b"n,,\x01" + start + b"=" + end):
        with contextlib.suppress(AuthenticationFailed):
            server().evaluate(message, 0)


@pytest.mark.parametrize(
    ("value", "extensions"),
    [
        ("", {}),
        ("a b", {}),
        ("good", {"auth": "x"}),
        ("good", {"a1": "x"}),
        ("good", {"a": ""}),
        ("good", {"a": "\x01"}),
    ],
)
def test_oauthbearer_client_refuses_tokens_and_extensions_that_break_the_frame(value, extensions):
    with pytest.raises(ConfigError):
        ClientToken(value, 0, extensions)


def test_oauthbearer_token_is_not_in_the_repr():
    assert "secret" not in repr(ClientToken("secret", 0))
