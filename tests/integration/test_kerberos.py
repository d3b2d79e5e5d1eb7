"""GSSAPI with a real key distribution center of MIT Kerberos, which Debian's package krb5-kdc has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kdc import Kdc, missing_program, running_kdc

from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.sasl.jaas import parse_jaas
from tidelog_foundation.sasl.mechanism import Authenticated, AuthenticationFailed, Deferred, SaslContext
from tidelog_foundation.security.principal import Principal

library = pytest.importorskip(
    "tidelog_foundation.kerberos.library",
    reason="needs python-gssapi: pip install tidelog[gssapi]",
    exc_type=ImportError,
)
CONTEXT = SaslContext("SASL_SSL", "127.0.0.1", is_encrypted=True)
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    missing = missing_program()
    if missing is not None:
        pytest.skip(f"there is no {missing}: install Debian's krb5-kdc and krb5-admin-server")
    with running_kdc(tmp_path_factory.mktemp("kdc")) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(running.configuration))
        yield running


def entry(key_table: Path, principal: str):
    return parse_jaas(f'{MODULE} keyTab="{key_table}" principal="{principal}@EXAMPLE.COM";')


def test_kerberos_authenticates_a_client_and_the_server(kdc: Kdc) -> None:
    service, alice = kdc.key_table("kafka/localhost"), kdc.key_table("alice")
    mechanism = library.gssapi_mechanism(entry(service, "kafka/localhost"), "kafka", ("DEFAULT",))
    login = library.gssapi_login(entry(alice, "alice"), "kafka")
    for _ in range(5):
        client, server = login.client("localhost"), mechanism.server(CONTEXT)
        token = client.first()
        for _ in range(4):
            step = server.evaluate(token, 0)
            assert isinstance(step, Deferred)
            outcome = step.work()
            if isinstance(outcome, Authenticated):
                break
            token = client.evaluate(outcome.token)
        assert outcome == Authenticated(Principal("User", "alice"))
        assert client.evaluate(outcome.response) is None
        assert client.is_complete


def test_kerberos_refuses_a_ticket_for_another_service_and_one_that_is_unknown(kdc: Kdc) -> None:
    other = kdc.key_table("kafka/other", "kafka/this")
    bob = kdc.key_table("bob")
    login = library.gssapi_login(entry(bob, "bob"), "kafka")
    with pytest.raises(TidelogError, match="not found"):
        login.client("nowhere")
    server = library.gssapi_mechanism(entry(other, "kafka/other"), "kafka", ("DEFAULT",)).server(CONTEXT)
    with pytest.raises(AuthenticationFailed, match="GSSAPI"):
        server.evaluate(login.client("this").first(), 0).work()
    server = library.gssapi_mechanism(entry(other, "kafka/other"), "kafka", ("DEFAULT",)).server(CONTEXT)
    with pytest.raises(AuthenticationFailed, match="GSSAPI"):
        server.evaluate(b"no token", 0).work()


def test_kerberos_names_the_principal_and_the_key_table_that_has_no_key_of_it(kdc: Kdc) -> None:
    table = kdc.key_table("erin")
    named = rf"principal mallory@EXAMPLE.COM, key table {table}"
    with pytest.raises(TidelogError, match=named):
        library.gssapi_login(entry(table, "mallory"), "kafka").client("localhost")
    server = library.gssapi_mechanism(entry(table, "mallory"), "kafka", ("DEFAULT",)).server(CONTEXT)
    with pytest.raises(AuthenticationFailed, match=named):
        server.evaluate(b"token", 0).work()


@pytest.mark.parametrize(
    ("login", "text"),
    [
        (f'{MODULE} principal="a@R";', "keyTab"),
        (f'{MODULE} keyTab="/no/table" principal="a@R";', "cannot read the key table /no/table"),
        (f'{MODULE} keyTab="{__file__}" principal="a@R";', "is not a key table"),
        (f'{MODULE} useTicketCache=true keyTab="x" principal="a@R";', "useTicketCache"),
        ('com.sun.security.auth.module.Krb5LoginModule required keyTab="x" principal="a@R";', "useKeyTab=true"),
    ],
)
def test_settings_of_kerberos_that_are_invalid_are_refused(login: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        library.gssapi_mechanism(parse_jaas(login), "kafka", ("DEFAULT",))
