"""The exchange of GSSAPI around a toy security context; tests/integration has that of a real Kerberos."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelog_foundation.kerberos.local_names import LocalNames
from tidelog_foundation.sasl.gssapi import GssapiClient, GssapiLogin, GssapiMechanism, GssError
from tidelog_foundation.sasl.mechanism import Authenticated, AuthenticationFailed, Challenge, SaslContext
from tidelog_foundation.security.principal import Principal

CONTEXT = SaslContext("SASL_SSL", "10.0.0.1", is_encrypted=True)


@dataclass
class ToyContext:
    """Completes after one token of each side. A protected message begins with a mark."""

    complete: bool = False
    initiator: str = "alice@EXAMPLE.COM"

    def step(self, token: bytes | None) -> bytes | None:
        if token is None:
            return b"ticket"
        self.complete = True
        if token == b"ticket":
            return b"proof"
        if token == b"proof":
            return None
        raise GssError("Decrypt integrity check failed")

    def wrap(self, message: bytes) -> bytes:
        return b"w" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"w"):
            raise GssError("A token had an invalid Message Integrity Check")
        return message[1:]


def server(initiator="alice@EXAMPLE.COM"):
    mechanism = GssapiMechanism(lambda: ToyContext(initiator=initiator), LocalNames("EXAMPLE.COM"))
    exchange = mechanism.server(CONTEXT)
    return lambda token: exchange.evaluate(token, 0).work()


def test_gssapi_authenticates_both_sides_without_a_security_layer() -> None:
    ask, client = server(), GssapiLogin(lambda _: ToyContext()).client("node-1")
    proof = ask(client.first())
    offer = ask(client.evaluate(proof.token))
    assert offer == Challenge(b"w\x01\x00\x00\x00")
    done = ask(client.evaluate(offer.token))
    assert done == Authenticated(Principal("User", "alice"))
    assert not client.is_complete
    assert client.evaluate(done.response) is None
    assert client.is_complete


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (b"\x01\x00\x00\x00", "Integrity"),
        (b"w\x01", "has 1 bytes"),
        (b"w\x02\x00\x00\x00", "security layer 2"),
        (b"w\x01\x00\x00\x00bob", "authorization id"),
    ],
)
def test_gssapi_refuses_another_choice_than_no_layer_for_the_client_itself(choice, reason) -> None:
    ask = server()
    ask(b"ticket")
    ask(b"")
    with pytest.raises(AuthenticationFailed, match=reason) as failed:
        ask(choice)
    assert failed.value.public is None


def test_gssapi_refuses_a_wrong_ticket_a_foreign_realm_and_an_endless_exchange() -> None:
    with pytest.raises(AuthenticationFailed, match="Decrypt integrity check failed"):
        server()(b"forged")
    ask = server("alice@ELSEWHERE.COM")
    ask(b"ticket")
    ask(b"")
    with pytest.raises(AuthenticationFailed, match="no rule"):
        ask(b"w\x01\x00\x00\x00")
    exchange = GssapiMechanism(ToyContext, LocalNames("R")).server(CONTEXT)
    for _ in range(8):
        exchange.evaluate(b"", 0)
    with pytest.raises(AuthenticationFailed, match="token 9"):
        exchange.evaluate(b"", 0)
    with pytest.raises(AuthenticationFailed, match="65537 bytes"):
        GssapiMechanism(ToyContext, LocalNames("R")).server(CONTEXT).evaluate(bytes(65_537), 0)


def test_gssapi_client_refuses_a_server_that_requires_a_layer() -> None:
    client = GssapiClient(ToyContext(complete=True), b"")
    with pytest.raises(AuthenticationFailed, match="security layer"):
        client.evaluate(b"w\x04\x00\x00\x00")
