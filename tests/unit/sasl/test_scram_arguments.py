"""The argument that adds a user when a cluster is formatted."""

from __future__ import annotations

import base64

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.scram_arguments import parse_new_user
from tidelog_foundation.sasl.scram_credentials import ScramMechanism, credential_of, salted_password

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = base64.b64encode(b"salt").decode()
SALTED = salted_password(SHA_256, b"canary", b"salt", 4_096)


@pytest.mark.parametrize(
    ("text", "mechanism", "iterations", "salt"),
    [
        ("SCRAM-SHA-256=[name=alice,password=canary]", SHA_256, 4_096, b"random"),
        (f"SCRAM-SHA-256=[name=alice,password=canary,salt={SALT}]", SHA_256, 4_096, b"salt"),
        (' SCRAM-SHA-512=[password="canary",iterations=16384,name="alice"] ', SHA_512, 16_384, b"random"),
    ],
)
def test_new_user_has_the_credential_of_the_password(text, mechanism, iterations, salt) -> None:
    user = parse_new_user(text)
    assert (user.name, user.mechanism, user.password) == ("alice", mechanism, "canary")
    made = user.credential("canary", b"random")
    assert made == credential_of(mechanism, salted_password(mechanism, b"canary", salt, iterations), salt, iterations)
    assert "canary" not in repr(user)


def test_new_user_can_have_a_salted_password() -> None:
    text = f"SCRAM-SHA-256=[name=alice,salt={SALT},saltedpassword={base64.b64encode(SALTED).decode()}]"
    assert parse_new_user(text).credential("", b"") == credential_of(SHA_256, SALTED, b"salt", 4_096)


def test_new_user_can_name_the_source_of_the_password() -> None:
    assert parse_new_user("SCRAM-SHA-256=[name=a,password-file=/run/secrets/a]").password_file == "/run/secrets/a"
    assert parse_new_user("SCRAM-SHA-256=[name=a,password-env=SECRET]").password_env == "SECRET"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("canary", "must begin with SCRAM-SHA-256= or SCRAM-SHA-512="),
        ("PLAIN=[name=a,password=canary]", "must begin with"),
        ("SCRAM-SHA-256=name=a,password=canary", r"must be followed by \[name"),
        ("SCRAM-SHA-256=[password=canary]", "needs a name"),
        ("SCRAM-SHA-256=[name=a]", "needs exactly one of"),
        ("SCRAM-SHA-256=[name=a,password=canary,password-env=X]", "needs exactly one of"),
        ("SCRAM-SHA-256=[name=a,password=]", "password of user a must not be empty"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=canary]", "needs salt"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword=canary!]", "is not base64"),
        ("SCRAM-SHA-256=[name=a,password=x,canary]", "separated by commas"),
        ("SCRAM-SHA-256=[name=a,password=x,canary=1]", "the keys are name"),
        ("SCRAM-SHA-256=[name=a,name=b,password=canary]", "given twice"),
        ("SCRAM-SHA-256=[name=a,password=canary,iterations=4095]", "must be 4096 to 16384, not 4095"),
        ("SCRAM-SHA-256=[name=a,password=canary,iterations=x]", "must be 4096 to 16384, not x"),
    ],
)
def test_new_user_is_refused_without_its_secrets(text, problem) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_new_user(text)
    assert "canary" not in str(caught.value)
