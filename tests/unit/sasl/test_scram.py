"""SCRAM: the vectors of its RFC, other implementations as oracles, and what an attacker may learn."""

from __future__ import annotations

import base64
import functools
import itertools

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.sasl import scram, scram_credentials
from tidelog_foundation.sasl.mechanism import Authenticated, AuthenticationFailed, Challenge, SaslContext
from tidelog_foundation.sasl.scram import ScramAccount, ScramLogin, ScramSaslMechanism, ScramServer
from tidelog_foundation.sasl.scram_credentials import (
    CredentialKey,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tidelog_foundation.sasl.scram_users import ScramUsers
from tidelog_foundation.security.principal import Principal

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
MECHANISMS = [SHA_256, SHA_512]
ALICE = Principal("User", "alice")
SALT = bytes(range(20))
NOBODY = ScramUsers(dict)
CONTEXT = SaslContext("SASL_SSL", "127.0.0.1", is_encrypted=True)


@functools.cache
def credential(mechanism=SHA_256, password="secret", salt=SALT, iterations=4_096):
    return credential_of(mechanism, salted_password(mechanism, password.encode(), salt, iterations), salt, iterations)


def users(mechanism=SHA_256, **passwords):
    stored = {CredentialKey(name, mechanism): credential(mechanism, password) for name, password in passwords.items()}
    return ScramUsers(lambda: stored)


def server(accounts, mechanism=SHA_256, tokens=NOBODY):
    return ScramServer(mechanism, accounts, tokens, "server")


def client(name="alice", password="secret", mechanism=SHA_256, nonce="client", **extensions):
    return ScramLogin(mechanism, name, password, lambda: nonce, extensions).client("host")


def exchange(made, peer, now_ms=0):
    """Return the outcome of the server; the client has verified it."""
    challenge = made.evaluate(peer.first(), now_ms)
    assert type(challenge) is Challenge
    outcome = made.evaluate(peer.evaluate(challenge.token), now_ms)
    assert not peer.is_complete
    assert peer.evaluate(outcome.response) is None
    assert peer.is_complete
    return outcome


def test_scram_follows_the_example_of_its_rfc() -> None:
    """RFC 7677, section 3."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    stored = {CredentialKey("user", SHA_256): credential(SHA_256, "pencil", salt)}
    made = ScramServer(SHA_256, ScramUsers(lambda: stored), NOBODY, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    peer = client("user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert peer.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = made.evaluate(peer.first(), 0).token
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert challenge == b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = peer.evaluate(challenge)
    assert final == b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    outcome = made.evaluate(final, 0)
    assert outcome == Authenticated(Principal("User", "user"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert peer.evaluate(outcome.response) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_accepts_the_client_of_aiokafka(mechanism) -> None:
    accounts = users(mechanism, alice="pass,word=")
    other = ScramAuthenticator(
        loop=None, sasl_plain_password="pass,word=", sasl_plain_username="alice", sasl_mechanism=mechanism.sasl_name
    )
    made = server(accounts, mechanism)
    steps = other.authenticator_scram()
    challenge = made.evaluate(next(steps)[0], 0)
    outcome = made.evaluate(steps.send(challenge.token)[0], 0)
    with pytest.raises(StopIteration):
        steps.send(outcome.response)
    assert outcome.principal == ALICE


NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)


@given(NAMES, st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(MECHANISMS))
def test_scram_authenticates_every_name_and_password(name, password, mechanism) -> None:
    outcome = exchange(server(users(mechanism, **{name: password}), mechanism), client(name, password, mechanism))
    assert outcome.principal == Principal("User", name)
    assert (outcome.expires_at_ms, outcome.is_token) == (None, False)


def refusal(made, token, now_ms=0):
    with pytest.raises(AuthenticationFailed) as caught:
        made.evaluate(token, now_ms)
    return caught.value


def refused_login(accounts, name, password):
    made, peer = server(accounts), client(name, password)
    challenge = made.evaluate(peer.first(), 0)
    return challenge.token, refusal(made, peer.evaluate(challenge.token))


def test_scram_takes_the_same_steps_for_an_unknown_user_and_a_wrong_password() -> None:
    accounts = users(alice="secret", bob="other")
    known, wrong = refused_login(accounts, "alice", "wrong")
    unknown, absent = refused_login(accounts, "carol", "wrong")
    assert len(known) == len(unknown)
    assert wrong.public is absent.public is None
    assert (wrong.reason, absent.reason) == (
        "wrong password of user 'alice'",
        "there is no user 'carol' with a credential for SCRAM-SHA-256",
    )
    other_server = users(bob="other", alice="secret")
    assert refused_login(other_server, "carol", "wrong")[0] == unknown, "the salt of an unknown user stays the same"
    assert refused_login(accounts, "dave", "wrong")[0] != unknown


def test_scram_never_accepts_a_decoy() -> None:
    """The keys of a decoy are not those of any message, and no account belongs to it."""

    class Lenient(ScramUsers):
        def decoy(self, mechanism, name):
            return credential(mechanism, "wrong")

    assert "there is no user" in refused_login(Lenient(dict), "carol", "wrong")[1].reason


def test_scram_finds_a_credential_after_its_change() -> None:
    stored = [{CredentialKey("alice", SHA_256): credential()}]
    accounts = ScramUsers(lambda: stored[-1])
    before = accounts.decoy(SHA_256, "bob")
    assert exchange(server(accounts), client()).principal == ALICE
    stored.append({CredentialKey("alice", SHA_256): credential(password="new")})
    assert refused_login(accounts, "alice", "secret")[1].reason == "wrong password of user 'alice'"
    assert exchange(server(accounts), client(password="new")).principal == ALICE
    assert accounts.decoy(SHA_256, "bob") != before
    stored.append({})
    assert "there is no user" in refused_login(accounts, "alice", "new")[1].reason


@pytest.mark.parametrize("password", [None, "new", "secret"])
def test_scram_refuses_a_credential_that_was_removed_or_changed_during_the_login(password) -> None:
    stored = [{CredentialKey("alice", SHA_256): credential()}]
    made, peer = server(ScramUsers(lambda: stored[-1])), client()
    challenge = made.evaluate(peer.first(), 0)
    changed = (
        {} if password is None else {CredentialKey("alice", SHA_256): credential(password=password, salt=SALT[1:])}
    )
    stored.append(changed)
    refused = refusal(made, peer.evaluate(challenge.token))
    assert refused.reason == "the credential of user 'alice' was removed or changed during the login"
    assert refused.public is None


def test_scram_accepts_a_user_when_others_change_during_the_login() -> None:
    stored = [{CredentialKey("alice", SHA_256): credential()}]
    made, peer = server(ScramUsers(lambda: stored[-1])), client()
    challenge = made.evaluate(peer.first(), 0)
    stored.append({**stored[0], CredentialKey("bob", SHA_256): credential()})
    assert made.evaluate(peer.evaluate(challenge.token), 0).principal == ALICE


def shapes(accounts, names):
    found = [accounts.decoy(SHA_256, name) for name in names]
    return [(len(each.salt), each.iterations) for each in found]


def test_scram_decoys_have_the_shapes_of_users_in_their_proportion() -> None:
    """Neither a frequent nor a rare shape tells users from unknown names."""
    stored = {CredentialKey(f"user-{i}", SHA_256): credential() for i in range(30)}
    stored |= {CredentialKey(f"rare-{i}", SHA_256): credential(iterations=8_192) for i in range(10)}
    names = [f"name-{i}" for i in range(2_000)]
    found = shapes(ScramUsers(lambda: stored), names)
    assert set(found) == {(20, 4_096), (20, 8_192)}
    assert 0.2 < found.count((20, 8_192)) / len(found) < 0.3
    reordered = dict(reversed(stored.items()))
    assert shapes(ScramUsers(lambda: reordered), names) == found, "the same on each server"
    added = stored | {CredentialKey("user-30", SHA_256): credential()}
    changed = [old != new for old, new in zip(found, shapes(ScramUsers(lambda: added), names), strict=True)]
    assert sum(changed) / len(names) < 1 / len(stored)


def test_scram_distinguishes_mechanisms() -> None:
    accounts = users(SHA_512, alice="secret")
    assert refused_login(accounts, "alice", "secret")[1].reason.endswith("for SCRAM-SHA-256")
    assert exchange(server(accounts, SHA_512), client(mechanism=SHA_512)).principal == ALICE


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=alice",
        b"n,,r=x,n=alice",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,m=x,n=alice,r=x",
        b"n,,n=al=ice,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=\xff",
        b"n,,n=alice,r=x\n",
        b"n,,n=alice,r=x,tokenauth",
        b"n,,n=alice,r=" + b"x" * 9_000,
    ],
)
def test_scram_refuses_a_malformed_first_message(first) -> None:
    failed = refusal(server(users(alice="secret")), first)
    assert "client-first" in failed.reason
    assert "alice" not in failed.reason


def test_scram_refuses_another_authorization_id() -> None:
    accounts = users(**{"alice": "secret", "a,b": "x"})
    assert type(server(accounts).evaluate(b"n,a=alice,n=alice,r=x", 0)) is Challenge
    assert type(server(accounts).evaluate(b"n,a=a=2Cb,n=a=2Cb,r=x", 0)) is Challenge
    for name in (b"alice", b"nobody"):
        failed = refusal(server(accounts), b"n,a=bob,n=" + name + b",r=x")
        assert failed.public == (
            "Authentication failed: Client requested an authorization id that is different from username"
        )


@pytest.mark.parametrize(
    ("nonce", "reason"),
    [
        ("clientclientserver", "the client's own nonce is there twice, as librdkafka before 2.6.1 sends it"),
        ("clientother", "it is not that of the challenge"),
    ],
)
def test_scram_refuses_another_nonce_and_says_which_client_repeats_its_own(nonce: str, reason: str) -> None:
    made, peer = server(users(alice="secret")), client()
    challenge = made.evaluate(peer.first(), 0)
    server_nonce = challenge.token.split(b",")[0].removeprefix(b"r=client")
    final = peer.evaluate(challenge.token)
    repeated = final.replace(b"r=client" + server_nonce, b"r=" + nonce.encode().replace(b"server", server_nonce))
    assert refusal(made, repeated).reason == f"wrong nonce of user 'alice': {reason}"


def test_scram_signs_the_header_of_the_first_message() -> None:
    """A client that sent an authorization id repeats it in its final message (RFC 5802, section 5.1)."""
    made, peer = server(users(alice="secret")), client()
    challenge = made.evaluate(b"n,a=alice,n=alice,r=client", 0)
    assert "channel binding" in refusal(made, peer.evaluate(challenge.token)).reason


@pytest.mark.parametrize(
    "change",
    [
        lambda final: final.replace(b"r=client", b"r=Client"),
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"c=biws", b"c=b"),
        lambda final: final.replace(b",p=", b",x=y,p="),
        lambda final: final[: final.index(b"p=") + 2],
        lambda final: final[:-4],
        lambda final: final + b"AAAA",
        lambda final: b"",
        lambda final: b"\xff" + final,
    ],
)
def test_scram_refuses_a_changed_final_message(change) -> None:
    made, peer = server(users(alice="secret")), client()
    final = peer.evaluate(made.evaluate(peer.first(), 0).token)
    refusal(made, change(final))


@given(st.data())
def test_scram_raises_nothing_but_a_failure_whatever_the_tokens(data) -> None:
    made, peer = server(users(alice="secret")), client()
    parts = st.sampled_from([peer.first(), b"n,,n=", b",r=x", b"c=biws", b",p=", b"=", b",", b"\xff", b"\0", b"=2C"])
    tokens = st.one_of(st.binary(), st.lists(parts).map(b"".join))
    for _ in range(3):
        try:
            assert type(made.evaluate(data.draw(tokens), 0)) is Challenge
        except AuthenticationFailed:
            return


class Tokens:
    """Delegation tokens, one of which has the id ``id`` and the HMAC ``hmac``."""

    def find(self, mechanism, name):
        return ScramAccount(ALICE, credential(mechanism, "hmac"), expires_at_ms=100) if name == "id" else None

    def decoy(self, mechanism, name):
        return credential(mechanism, "decoy")


@pytest.mark.parametrize("value", ["true", "True"])
def test_scram_authenticates_the_owner_of_a_delegation_token(value) -> None:
    outcome = exchange(server(users(id="user"), tokens=Tokens()), client("id", "hmac", tokenauth=value), now_ms=99)
    assert (outcome.principal, outcome.expires_at_ms, outcome.is_token) == (ALICE, 100, True)


def test_scram_refuses_tokens_that_expired_or_do_not_exist() -> None:
    for name, password, now_ms, reason in (
        ("id", "hmac", 100, "has expired"),
        ("id", "user", 0, "wrong password of delegation token 'id'"),
        ("alice", "secret", 0, "there is no delegation token 'alice'"),
    ):
        made, peer = server(users(alice="secret"), tokens=Tokens()), client(name, password, tokenauth="true")
        challenge = made.evaluate(peer.first(), now_ms)
        assert reason in refusal(made, peer.evaluate(challenge.token), now_ms=now_ms).reason


def test_scram_ignores_other_extensions() -> None:
    accounts = users(alice="secret")
    assert exchange(server(accounts), client(tokenauth="false", color="blue")).principal == ALICE


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=client,s=AAAA,i=4096", "does not extend"),
        (b"r=other,s=AAAA,i=4096", "does not extend"),
        (b"r=clientx,s=AAAA,i=4095", "demands 4095 iterations"),
        (b"r=clientx,s=AAAA,i=16385", "demands 16385 iterations"),
        (b"r=clientx,s=AAA,i=4096", "salt is not base64"),
        (b"r=clientx,i=4096", "invalid server-first"),
        (b"", "invalid server-first"),
    ],
)
def test_scram_client_refuses_a_hostile_challenge(challenge, reason) -> None:
    with pytest.raises(AuthenticationFailed, match=reason):
        client().evaluate(challenge)


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"v=" + base64.b64encode(bytes(32)), "does not know the credential"),
        (b"v=", "does not know the credential"),
        (b"e=other-error", "other-error"),
        (b"", "invalid server-final"),
    ],
)
def test_scram_client_refuses_a_server_that_does_not_know_the_credential(final, reason) -> None:
    made, peer = server(users(alice="secret")), client()
    peer.evaluate(made.evaluate(peer.first(), 0).token)
    with pytest.raises(AuthenticationFailed, match=reason):
        peer.evaluate(final)
    assert not peer.is_complete


def test_scram_mechanism_and_login_begin_exchanges_with_new_nonces() -> None:
    nonces = map(str, itertools.count())
    mechanism = ScramSaslMechanism(SHA_512, users(SHA_512, alice="secret"), NOBODY, lambda: next(nonces))
    login = ScramLogin(SHA_512, "alice", "secret", lambda: "c" + next(nonces))
    assert mechanism.name == login.mechanism == "SCRAM-SHA-512"
    for _ in range(2):
        assert exchange(mechanism.server(CONTEXT), login.client("host")).principal == ALICE
    assert next(nonces) == "4"


def test_scram_login_salts_its_password_again_only_after_a_change(monkeypatch) -> None:
    salted: list[bytes] = []

    def salting(mechanism, password, salt, iterations):
        salted.append(salt)
        return salted_password(mechanism, password, salt, iterations)

    monkeypatch.setattr(scram, "salted_password", salting)
    stored = {CredentialKey("alice", SHA_256): credential()}
    login = ScramLogin(SHA_256, "alice", "secret", lambda: "client")
    for _ in range(2):
        assert exchange(server(ScramUsers(lambda: stored)), login.client("host")).principal == ALICE
    stored = {CredentialKey("alice", SHA_256): credential(salt=b"new")}
    assert exchange(server(ScramUsers(lambda: stored)), login.client("host")).principal == ALICE
    assert salted == [SALT, b"new"]


def test_scram_secrets_are_not_in_the_text_of_any_object() -> None:
    stored = credential(password="canary")
    texts = [repr(stored), repr(ScramLogin(SHA_256, "alice", "canary", str)), repr(ScramAccount(ALICE, stored))]
    assert repr(stored) == "ScramCredential(iterations=4096)"
    assert not any("canary" in text or "\\x" in text for text in texts)


def test_scram_credential_depends_on_each_of_its_inputs() -> None:
    made = {
        credential(),
        credential(SHA_512),
        credential(password="other"),
        credential(salt=b"other"),
        credential(iterations=4_097),
    }
    assert len(made) == 5
    assert {each.sasl_name: each for each in MECHANISMS} == scram_credentials.MECHANISMS
    assert ScramMechanism(99) is ScramMechanism.UNKNOWN
    assert type(made.pop()) is ScramCredential
