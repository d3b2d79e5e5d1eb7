"""The argument that adds a user when a cluster is formatted, in Kafka's syntax (KIP-900).

``SCRAM-SHA-256=[name=alice,password=alice-secret]`` may also have ``iterations``, ``salt`` (base64) and, in place of
the password, ``saltedpassword`` (base64, with the salt). In addition to Kafka's keys, ``password-file`` and
``password-env`` name the source of the password, since other processes can read command lines.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.scram_credentials import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    CredentialKey,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

_SECRETS: Final = ("password", "password-file", "password-env", "saltedpassword")
_KEYS: Final = ("name", "iterations", "salt", *_SECRETS)


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user to add, with exactly one source of the password. A salted password has a salt."""

    name: str
    mechanism: ScramMechanism
    iterations: int
    salt: bytes | None = field(repr=False)
    password: str | None = field(repr=False)
    password_file: str | None
    password_env: str | None
    salted_password: bytes | None = field(repr=False)

    @property
    def key(self) -> CredentialKey:
        """The user and the mechanism."""
        return CredentialKey(self.name, self.mechanism)

    def credential(self, password: str, salt: bytes) -> ScramCredential:
        """Return the credential. The arguments are for a user without a salted password, and without a salt."""
        salt = self.salt if self.salt is not None else salt
        salted = self.salted_password
        if salted is None:
            salted = salted_password(self.mechanism, password.encode(), salt, self.iterations)
        return credential_of(self.mechanism, salted, salt, self.iterations)


def parse_new_user(text: str) -> NewUser:
    """Return the user of an argument.

    Raises:
        ConfigError: The argument is invalid. The text contains no value that may be secret.
    """
    mechanism_name, equals, body = text.strip().partition("=")
    if not equals or mechanism_name not in MECHANISMS:
        raise ConfigError(f"a user to add must begin with {' or '.join(f'{each}=' for each in MECHANISMS)}")
    if not (body.startswith("[") and body.endswith("]")):
        raise ConfigError(f"{mechanism_name}= must be followed by [name=...,password=...]")
    parts = _parts(body[1:-1])
    if not parts.get("name"):
        raise ConfigError("a user to add needs a name")
    given = [key for key in _SECRETS if key in parts]
    if len(given) != 1:
        raise ConfigError(f"user {parts['name']} needs exactly one of {', '.join(_SECRETS)}")
    if "saltedpassword" in parts and "salt" not in parts:
        raise ConfigError(f"user {parts['name']} has saltedpassword, which needs salt")
    if not parts[given[0]]:
        raise ConfigError(f"{given[0]} of user {parts['name']} must not be empty")
    return NewUser(
        parts["name"],
        MECHANISMS[mechanism_name],
        _iterations(parts),
        _bytes(parts, "salt"),
        parts.get("password"),
        parts.get("password-file"),
        parts.get("password-env"),
        _bytes(parts, "saltedpassword"),
    )


def _parts(body: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in body.split(","):
        key, equals, value = part.partition("=")
        if not equals or key not in _KEYS:
            # The part may be the rest of a password with a comma.
            raise ConfigError(
                f"a user to add has parts key=value, separated by commas; the keys are {', '.join(_KEYS)}"
            )
        if key in parts:
            raise ConfigError(f"{key} of a user to add is given twice")
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        parts[key] = value[1:-1] if is_quoted else value
    return parts


def _iterations(parts: dict[str, str]) -> int:
    text = parts.get("iterations", str(MIN_ITERATIONS))
    if not (text.isascii() and text.isdigit() and MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS):
        raise ConfigError(
            f"iterations of user {parts['name']} must be {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {text}"
        )
    return int(text)


def _bytes(parts: dict[str, str], key: str) -> bytes | None:
    if key not in parts:
        return None
    try:
        return base64.b64decode(parts[key], validate=True)
    except binascii.Error:
        raise ConfigError(f"{key} of user {parts['name']} is not base64") from None
