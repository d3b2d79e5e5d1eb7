"""The accounts of users for SCRAM, over the stored credentials, with decoys for users that have none.

Every server of a cluster makes the same decoy for a name, from the same credentials, so that asking several servers, or
one before and after a restart, does not tell decoys from credentials. A decoy has the shape (size of the salt, number
of iterations) of the first user's credential and changes with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tidelog_foundation.sasl.scram import ScramAccount
from tidelog_foundation.sasl.scram_credentials import (
    MIN_ITERATIONS,
    SALT_BYTES,
    CredentialKey,
    ScramCredential,
    ScramMechanism,
)
from tidelog_foundation.security.principal import USER, Principal

Credentials: TypeAlias = Mapping[CredentialKey, ScramCredential]
_NO_USER: Final = ScramCredential(bytes(SALT_BYTES), b"", b"", MIN_ITERATIONS)


class ScramUsers:
    """The users with credentials. ``credentials`` returns an immutable map, another one after each change."""

    def __init__(self, credentials: Callable[[], Credentials]) -> None:
        self._credentials = credentials
        self._models: tuple[Credentials, dict[ScramMechanism, ScramCredential]] = ({}, {})

    def find(self, mechanism: ScramMechanism, name: str) -> ScramAccount | None:
        """Return the account of a user, or None."""
        credential = self._credentials().get(CredentialKey(name, mechanism))
        return None if credential is None else ScramAccount(Principal(USER, name), credential)

    def decoy(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a credential that no password fits, always the same for a name while the first user's is the same."""
        model = self._model(mechanism)
        secret = hashlib.sha512(model.stored_key + model.server_key + name.encode()).digest()
        size = hashlib.new(mechanism.digest).digest_size
        stream = hashlib.shake_256(secret).digest(2 * size + len(model.salt))
        return ScramCredential(stream[2 * size :], stream[:size], stream[size : 2 * size], model.iterations)

    def _model(self, mechanism: ScramMechanism) -> ScramCredential:
        """Return the first user's credential for a mechanism; found again after a change of the credentials."""
        credentials = self._credentials()
        if self._models[0] is not credentials:
            self._models = (credentials, {})
        models = self._models[1]
        if mechanism not in models:
            first = min((key for key in credentials if key.mechanism is mechanism), default=None)
            models[mechanism] = _NO_USER if first is None else credentials[first]
        return models[mechanism]
