from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.settings import SaslSettings, is_sasl_key, listener_sasl_settings

_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=canary;"


def test_sasl_settings_have_kafkas_defaults() -> None:
    settings = SaslSettings()
    assert settings.sasl_enabled_mechanisms == ("GSSAPI",)
    assert settings.sasl_mechanism_inter_broker_protocol == "GSSAPI"
    assert settings.connections_max_reauth_ms == 0
    assert settings.sasl_server_max_receive_size == 524_288
    assert settings.connection_failed_authentication_delay_ms == 100


def test_sasl_setting_of_a_mechanism_replaces_that_of_its_listener() -> None:
    shared = {"sasl.enabled.mechanisms": "GSSAPI", "connections.max.reauth.ms": "1", "node.id": "7"}
    own = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connections.max.reauth.ms": "2",
        "scram-sha-256.connections.max.reauth.ms": "3",
        "plain.sasl.jaas.config": _JAAS,
    }

    found = listener_sasl_settings("SASL_SSL", shared, own)

    assert list(found.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    plain, scram = found.mechanisms.values()
    assert plain.settings.connections_max_reauth_ms == 2
    assert plain.login is not None
    assert plain.login.users() == {"alice": "canary"}
    assert scram.settings.connections_max_reauth_ms == 3
    assert scram.login is None
    assert "canary" not in repr(found)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("sasl.enabled.mechanisms", "", "needs a mechanism"),
        ("sasl.enabled.mechanisms", "PLAIN,CRAM", "must be a list of PLAIN, SCRAM-SHA-256"),
        ("sasl.jaas.config", _JAAS, "listener.name.sasl_ssl.<mechanism>.sasl.jaas.config"),
        ("plain.sasl.jaas.config", _JAAS[:-1], "listener.name.sasl_ssl.plain.sasl.jaas.config.*semicolon"),
        ("scram-sha-512.sasl.jaas.config", _JAAS, "SCRAM-SHA-512 is not in sasl.enabled.mechanisms"),
        ("plain.sasl.enabled.mechanisms", "PLAIN", "not of mechanisms"),
        ("connection.failed.authentication.delay.ms", "1", "all listeners together"),
        ("plain.connections.max.reauth.mss", "1", 'did you mean "listener.name.sasl_ssl.plain.connections.max.reauth'),
        ("connections.max.reauth.ms", "-1", "must be at least 0"),
    ],
)
def test_sasl_setting_without_effect_is_refused_by_its_full_name(key: str, value: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as raised:
        listener_sasl_settings("SASL_SSL", {"sasl.enabled.mechanisms": "PLAIN"}, {key: value})
    assert "canary" not in raised.value.message


def test_sasl_keys_are_those_of_listeners_and_of_mechanisms() -> None:
    assert is_sasl_key("sasl.enabled.mechanisms")
    assert is_sasl_key("plain.sasl.jaas.config")
    assert is_sasl_key("sasl.jaas.config")
    assert not is_sasl_key("ssl.client.auth")
    assert not is_sasl_key("plain.ssl.client.auth")
