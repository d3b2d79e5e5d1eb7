from __future__ import annotations

import logging

import pytest

from tidelog_foundation.config.endpoints import NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.security.listener_settings import listener_security

SSL = NamedListener("SSL", "a", 1, "SSL")
LOGIN = NamedListener("LOGIN", "a", 2, "SASL_SSL")


def test_listener_has_the_shared_settings_and_those_with_its_prefix() -> None:
    properties = {
        "node.id": "1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/shared",
        "listener.name.inside.ssl.keystore.location": "/own",
        "listener.name.inside.ssl.client.auth": "required",
    }
    found = listener_security(properties, [NamedListener(name, "a", 0, "SSL") for name in ("INSIDE", "OUTSIDE")])
    assert [found[name].ssl.ssl_keystore_location for name in ("INSIDE", "OUTSIDE")] == ["/own", "/shared"]
    assert [found[name].ssl.ssl_client_auth for name in ("INSIDE", "OUTSIDE")] == ["required", "none"]
    assert found["INSIDE"].sasl is None


def test_listener_with_sasl_has_its_mechanisms() -> None:
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": "Module required user_alice=canary;",
    }
    sasl = listener_security(properties, [SSL, LOGIN])["LOGIN"].sasl
    assert sasl is not None
    assert list(sasl.mechanisms) == ["PLAIN"]


def test_certificates_of_clients_are_required_beside_sasl_only_by_the_listeners_own_setting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = {"ssl.client.auth": "required"}
    with caplog.at_level(logging.WARNING):
        found = listener_security(shared, [SSL, LOGIN])
    assert [found[name].ssl.ssl_client_auth for name in ("SSL", "LOGIN")] == ["required", "none"]
    assert "Set listener.name.login.ssl.client.auth for it" in caplog.text

    own = shared | {"listener.name.login.ssl.client.auth": "requested"}
    assert listener_security(own, [SSL, LOGIN])["LOGIN"].ssl.ssl_client_auth == "requested"


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("listener.name.other.ssl.client.auth", "names none of the listeners: ssl, login"),
        ("listener.name.SSL.ssl.client.auth", "names none of the listeners: ssl, login"),
        ("listener.name.ssl.log.dirs", '"log.dirs" is not a setting of single listeners'),
        ("listener.name.login.plain.log.dirs", '"plain.log.dirs" is not a setting of single listeners'),
        ("listener.name.ssl.plain.sasl.jaas.config", "the listener has no SASL, but SSL"),
    ],
)
def test_prefixed_key_that_no_listener_has_is_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listener_security({key: "none"}, [SSL, LOGIN])
    assert text in caught.value.message
