from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl import Authenticated, Challenge, SaslContext
from tidelog_foundation.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE
from tidelog_foundation.sasl.scram_credentials import (
    MIN_ITERATIONS,
    CredentialKey,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from tidelog_foundation.sasl.scram_users import ScramUsers
from tidelog_foundation.sasl.settings import MechanismSettings, listener_sasl_settings
from tidelog_foundation.security.mechanisms import Accounts, own_login, served_mechanism

CREDENTIALS: dict[CredentialKey, ScramCredential] = {}
ACCOUNTS = Accounts(ScramUsers(lambda: CREDENTIALS), ScramUsers(dict))


def _credential(mechanism: ScramMechanism) -> ScramCredential:
    salt = b"salt" * 4
    return credential_of(mechanism, salted_password(mechanism, b"canary", salt, MIN_ITERATIONS), salt, MIN_ITERATIONS)


def settings_of(mechanism: str, jaas: str | None) -> MechanismSettings:
    own = {"sasl.enabled.mechanisms": mechanism, f"{mechanism.lower()}.connections.max.reauth.ms": "7"}
    if jaas is not None:
        own[f"{mechanism.lower()}.sasl.jaas.config"] = jaas
    return listener_sasl_settings("LOGIN", {}, own).mechanisms[mechanism]


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", f"{PLAIN_LOGIN_MODULE} required username=node password=canary user_node=canary;"),
        ("SCRAM-SHA-256", f"{SCRAM_LOGIN_MODULE} required username=node password=canary;"),
        ("SCRAM-SHA-512", f"{SCRAM_LOGIN_MODULE} required username=node password=canary;"),
    ],
)
def test_nodes_own_login_is_accepted_by_its_listener(mechanism: str, jaas: str) -> None:
    settings = settings_of(mechanism, jaas)
    for scram in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        CREDENTIALS[CredentialKey("node", scram)] = _credential(scram)
    served = served_mechanism("LOGIN", settings, ACCOUNTS)
    server = served.mechanism.server(SaslContext("LOGIN", "127.0.0.1", is_encrypted=True))
    client = own_login("LOGIN", settings).client("localhost")

    token: bytes | None = client.first()
    while not client.is_complete:
        assert token is not None
        step = server.evaluate(token, 0)
        assert isinstance(step, (Challenge, Authenticated))
        token = client.evaluate(step.token if isinstance(step, Challenge) else step.response or b"")

    assert isinstance(step, Authenticated)
    assert str(step.principal) == "User:node"
    assert served.max_session_ms == 7


@pytest.mark.parametrize(
    ("mechanism", "jaas", "fault"),
    [
        ("PLAIN", None, "PLAIN of listener LOGIN: sasl.jaas.config is missing"),
        ("PLAIN", f"{PLAIN_LOGIN_MODULE} required username=node password=canary;", "has no user"),
        ("PLAIN", f"{SCRAM_LOGIN_MODULE} required user_node=canary;", "must be org.apache.kafka.common.security.plain"),
        ("PLAIN", f"{PLAIN_LOGIN_MODULE} required usr_node=canary;", 'unknown option "usr_node"'),
        ("SCRAM-SHA-256", f"{PLAIN_LOGIN_MODULE} required;", "must be org.apache.kafka.common.security.scram"),
    ],
)
def test_mechanism_that_cannot_work_is_refused_by_its_listeners_name(mechanism: str, jaas: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as raised:
        served_mechanism("LOGIN", settings_of(mechanism, jaas), ACCOUNTS)
    assert "canary" not in raised.value.message


def test_login_without_a_user_is_refused() -> None:
    settings = settings_of("PLAIN", f"{PLAIN_LOGIN_MODULE} required user_node=canary;")
    with pytest.raises(ConfigError, match=r'login with PLAIN over listener LOGIN: .* needs the option "username"'):
        own_login("LOGIN", settings)
