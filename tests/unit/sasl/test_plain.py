from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl import Authenticated, AuthenticationFailed, SaslContext
from tidelog_foundation.sasl.plain import PlainLogin, PlainMechanism
from tidelog_foundation.security import Principal

_CONTEXT = SaslContext("SASL_SSL", "127.0.0.1", is_encrypted=True)
_USERS = PlainMechanism({"alice": "wonderland", "bob": "", "zoë": "schlüssel"})


def test_plain_authenticates_a_user_with_its_password() -> None:
    client = PlainLogin("alice", "wonderland").client("host")

    answer = _USERS.server(_CONTEXT).evaluate(client.first(), 0)

    assert answer == Authenticated(Principal("User", "alice"))
    assert not client.is_complete
    assert client.evaluate(answer.response or b"") is None
    assert client.is_complete


def test_plain_accepts_the_users_own_name_as_the_authorization_id() -> None:
    answer = _USERS.server(_CONTEXT).evaluate("zoë\0zoë\0schlüssel".encode(), 0)
    assert answer.principal == Principal("User", "zoë")


def test_plain_answers_an_unknown_user_like_a_wrong_password() -> None:
    texts = {_failure(b"\0carol\0wonderland").public, _failure(b"\0alice\0wonder").public}
    assert texts == {"Authentication failed: Invalid username or password"}


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "1 parts"),
        (b"alice\0wonderland", "2 parts"),
        (b"\0alice\0wonderland\0", "4 parts"),
        (b"\0\0wonderland", "no username"),
        (b"\0bob\0", "no password"),
        (b"\0\xff\0wonderland", "not UTF-8"),
        (b"root\0alice\0wonderland", "authorization id"),
    ],
)
def test_plain_refuses_a_malformed_token_without_quoting_it(token: bytes, reason: str) -> None:
    failure = _failure(token)
    assert reason in failure.reason
    assert "wonderland" not in f"{failure.reason} {failure.public}"


@given(st.binary(max_size=64))
def test_plain_raises_only_authentication_failures_for_any_token(token: bytes) -> None:
    _failure(b"\xfe" + token)
    _failure(token)


def test_plain_client_refuses_a_challenge() -> None:
    client = PlainLogin("alice", "wonderland").client("host")
    with pytest.raises(AuthenticationFailed, match="challenge"):
        client.evaluate(b"what?")
    assert not client.is_complete


def test_plain_login_hides_its_password_and_requires_both_parts() -> None:
    assert "wonderland" not in repr(PlainLogin("alice", "wonderland"))
    for username, password in (("", "x"), ("x", ""), ("a\0b", "x")):
        with pytest.raises(ConfigError, match="must not be empty"):
            PlainLogin(username, password)


def _failure(token: bytes) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as raised:
        _USERS.server(_CONTEXT).evaluate(token, 0)
    return raised.value
