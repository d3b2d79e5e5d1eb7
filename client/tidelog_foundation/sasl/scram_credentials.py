"""Credentials for SCRAM (RFC 5802, RFC 7677): the derivation of their keys from passwords.

With a credential, a server verifies a password that it does not know. The ``repr`` of a credential has neither keys nor
salt. Passwords are UTF-8, unnormalized, as in Kafka.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import field
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog_foundation.dataclass import dataclass

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 64
"""The size of salts that Tidelog's tools create, that of confluent-kafka's."""


class ScramMechanism(IntEnum):
    """A mechanism, with Kafka's number for it. A number that is not Kafka's becomes UNKNOWN."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN

    @property
    def sasl_name(self) -> str:
        """The name of the SASL mechanism, such as SCRAM-SHA-256."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The name of the hash function, for hashlib."""
        return _DIGESTS[self]


_DIGESTS: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
MECHANISMS: Final = {mechanism.sasl_name: mechanism for mechanism in _DIGESTS}
"""The mechanisms by the names of SASL."""


class CredentialKey(NamedTuple):
    """The identity of a credential: a user has at most one for each mechanism."""

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's credential for one mechanism, as servers store it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password (RFC 5802, 2.2: Hi), which takes milliseconds of CPU time."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password, salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential for a salted password, which must not be empty."""
    stored = hashlib.new(mechanism.digest, client_key(mechanism, salted)).digest()
    return ScramCredential(salt, stored, server_key(mechanism, salted), iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a client proves that it knows the password."""
    return hmac.digest(salted, b"Client Key", mechanism.digest)


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a server proves that it knows the credential."""
    return hmac.digest(salted, b"Server Key", mechanism.digest)
