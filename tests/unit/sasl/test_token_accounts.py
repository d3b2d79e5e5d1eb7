"""Logins of SCRAM with delegation tokens."""

from __future__ import annotations

import base64

import pytest

from tidelog_foundation.requests.delegation_tokens import DelegationToken
from tidelog_foundation.sasl.mechanism import AuthenticationFailed, Challenge, SaslContext
from tidelog_foundation.sasl.scram import ScramLogin, ScramSaslMechanism
from tidelog_foundation.sasl.scram_credentials import MECHANISMS
from tidelog_foundation.sasl.scram_users import ScramUsers
from tidelog_foundation.sasl.token_hmacs import TokenAccounts, TokenHmacs, token_hmac
from tidelog_foundation.security.principal import Principal

ALICE = Principal("User", "alice")
TOKEN = DelegationToken("token-1", ALICE, ALICE, (), 0, 5_000, 9_000)
TOKENS = {TOKEN.token_id: TOKEN}


def login(scram, name, hmac, accounts=None, now_ms=1_000, tokenauth="true"):
    tokens = accounts or TokenAccounts("key", lambda: TOKENS)
    mechanism = ScramSaslMechanism(scram, ScramUsers(dict), tokens, lambda: "server")
    password = base64.b64encode(hmac).decode()
    client = ScramLogin(scram, name, password, lambda: "client", {"tokenauth": tokenauth}).client("node")
    server = mechanism.server(SaslContext("SASL_SSL", "10.0.0.1", is_encrypted=True))
    challenge = server.evaluate(client.first(), now_ms)
    assert isinstance(challenge, Challenge)
    done = server.evaluate(client.evaluate(challenge.token), now_ms)
    client.evaluate(done.response)
    assert client.is_complete
    return done


@pytest.mark.parametrize("scram", MECHANISMS.values())
def test_token_logs_in_as_its_owner_until_it_expires(scram) -> None:
    done = login(scram, "token-1", token_hmac("key", "token-1"))
    assert (done.principal, done.expires_at_ms, done.is_token) == (ALICE, 5_000, True)
    with pytest.raises(AuthenticationFailed, match="expired"):
        login(scram, "token-1", token_hmac("key", "token-1"), now_ms=5_000)


@pytest.mark.parametrize(
    ("name", "hmac", "extension"),
    [
        ("token-1", token_hmac("other", "token-1"), "true"),
        ("token-2", token_hmac("key", "token-2"), "true"),
        ("token-1", token_hmac("key", "token-1"), "false"),
    ],
)
def test_login_fails_with_a_wrong_hmac_an_unknown_token_or_without_the_extension(name, hmac, extension) -> None:
    for scram in MECHANISMS.values():
        with pytest.raises(AuthenticationFailed):
            login(scram, name, hmac, tokenauth=extension)


def test_no_token_logs_in_without_a_secret_key() -> None:
    for scram in MECHANISMS.values():
        with pytest.raises(AuthenticationFailed):
            login(scram, "token-1", token_hmac("", "token-1"), TokenAccounts(None, lambda: TOKENS))


def test_unknown_token_is_challenged_like_a_known_one() -> None:
    accounts, empty = TokenAccounts("key", lambda: TOKENS), TokenAccounts("key", dict)
    for scram in MECHANISMS.values():
        known, decoy = accounts.find(scram, "token-1").credential, empty.decoy(scram, "token-1")
        assert (known.salt, known.iterations) == (decoy.salt, decoy.iterations)
        assert len(known.stored_key) == len(decoy.stored_key) == len(decoy.server_key)


def test_tokens_are_found_by_their_hmacs_as_they_change() -> None:
    hmacs, hmac = TokenHmacs("key"), token_hmac("key", "token-1")
    assert hmacs.find({}, hmac) is None
    assert hmacs.find(TOKENS, hmac) is TOKEN
    assert hmacs.find({}, hmac) is None
